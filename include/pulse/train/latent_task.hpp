#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/train/condition_values.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/noise_process.hpp>

namespace pulse::train {

/// A data set of one step's latents, of at most `elements` each; `begin` sets the first sample's global position.
class latents_of_step {
public:
    latents_of_step(std::size_t samples, std::size_t elements, int channels) :
        elements_{elements}, channels_{channels}, values_(samples * elements) {}

    [[nodiscard]] std::size_t elements() const noexcept { return elements_; }
    [[nodiscard]] int channels() const noexcept { return channels_; }
    void batch(std::uint64_t position, std::span<float> out) const {
        const auto from = values_.begin() + static_cast<std::ptrdiff_t>((position - first_) * elements_);
        std::copy_n(from, out.size(), out.begin());
    }
    void begin(std::uint64_t position) noexcept { first_ = position; }
    /// Sets the elements per sample from now on.
    void resize(std::size_t elements) noexcept { elements_ = elements; }
    [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
    [[nodiscard]] std::span<float> of(std::size_t sample) {
        return std::span{values_}.subspan(sample * elements_, elements_);
    }

private:
    std::size_t elements_;
    int channels_;
    std::uint64_t first_{};
    std::vector<float> values_;
};

/// Data and loss of a rank for latents that the host computes before each step: `latents` holds one step's, and frozen
/// networks run on a `frozen_backend`. Device backends specialise it (<pulse/cuda/latent_task.cuh>).
template <class B>
class latent_task : public diffusion_task<latents_of_step> {
    static_assert(std::is_same_v<space_of<B>, host_space>,
                  "pulse: include <pulse/cuda.cuh> to use a latent_task on a device");

public:
    using latents = latents_of_step;
    using frozen_backend = B;

    latent_task(latents& of_step, const noise_process& noise, const diffusion_options& options, const any_transport&,
                condition_source conditions, mask_source masks = {}) :
        diffusion_task{of_step, noise, options, std::move(conditions), std::move(masks)} {}
};

} // namespace pulse::train
