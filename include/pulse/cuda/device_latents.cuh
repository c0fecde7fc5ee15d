#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cuda_runtime.h>

#include <pulse/cuda/event.cuh>
#include <pulse/cuda/kernels/diffusion.cuh>
#include <pulse/cuda/memory.cuh>

namespace pulse::cuda {

/// The latents of one step's samples on the calling thread's device, in the form of a data set: the host prepares them
/// before the step and uploads them in one copy. A sample has at most `elements`.
class device_latents {
public:
    device_latents(std::size_t samples, std::size_t elements, int channels) :
        samples_{samples}, elements_{elements}, layout_{1, static_cast<int>(elements) / channels, channels, 0},
        host_{samples * elements}, device_{samples * elements} {}

    /// Starts the samples from this global position on. Waits until the previous step's upload is done.
    void begin(std::uint64_t position) {
        uploaded_.synchronize();
        first_ = position;
    }
    /// Sets the elements per sample; call it after begin().
    void resize(std::size_t elements) noexcept {
        elements_ = elements;
        layout_.width = static_cast<int>(elements) / layout_.channels;
    }
    [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
    /// The host buffer of a sample's latents.
    [[nodiscard]] std::span<float> of(std::size_t sample) { return {host_.data() + sample * elements_, elements_}; }
    /// Copies the latents to the device, in stream order.
    void upload(cudaStream_t on) {
        copy_async<float>(device_.data(), host_.data(), samples_ * elements_, on);
        uploaded_.record(on);
    }

    // The interface that diffusion_task reads.
    [[nodiscard]] const device_latents& data() const noexcept { return *this; }
    [[nodiscard]] std::size_t elements() const noexcept { return elements_; }
    [[nodiscard]] std::uint32_t index_at(std::uint64_t position) const noexcept {
        return static_cast<std::uint32_t>(position - first_);
    }
    [[nodiscard]] static bool flipped_at(std::uint64_t) noexcept { return false; }
    [[nodiscard]] const image_layout& layout() const noexcept { return layout_; }
    [[nodiscard]] const float* pixels() const noexcept { return device_.data(); }

private:
    std::size_t samples_;
    std::size_t elements_;
    image_layout layout_;
    std::uint64_t first_{};
    pinned_memory<float> host_;
    device_memory<float> device_;
    event uploaded_{};
};

} // namespace pulse::cuda
