#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/error.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/step_graphs.cuh>
#include <pulse/cuda/stream_clock.cuh>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/weight_order.hpp>

namespace pulse::cuda {

/// The part of device_space that needs no kernels, so that a host compiler can compile it.
///
/// Memory is on the calling thread's device.
struct memory_space {
    static constexpr weight_order weights = weight_order::channels_last;

    /// Zero-initialised values; `Each` is copied as bytes.
    template <class Each>
    class array {
    public:
        array() = default;
        explicit array(std::size_t n) : memory_{n} {
            if (n == 0) { return; }
            check(cudaMemset(memory_.data(), 0, memory_.bytes()), "cudaMemset");
            // Streams of pulse are not ordered with the default one, so that their captures in other threads continue.
            check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
        }
        [[nodiscard]] Each* data() const noexcept { return memory_.data(); }
        [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }

    private:
        device_memory<Each> memory_;
    };

    /// Uninitialised memory for a step, aligned to 256 bytes.
    class bytes {
    public:
        explicit bytes(std::size_t size) : memory_{size} {}
        [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }

    private:
        device_memory<std::byte> memory_;
    };
    using clock = stream_clock;
    using sections = step_graphs;

    /// Copies bytes on the device, in the order of the backend's stream.
    template <class B>
    static void copy(const B& math, const std::byte* from, std::byte* to, std::int64_t bytes) {
        copy_async(to, from, static_cast<std::size_t>(bytes), math.stream());
    }
    /// Copies from host memory to the device, and back; done on return. Stream work on either side must be finished
    /// first (stream::synchronize).
    template <class T>
    static void upload(std::span<const T> from, T* to) {
        static_assert(std::is_trivially_copyable_v<T>);
        if (from.empty()) { return; }
        cuda::upload<T>(from.data(), to, from.size());
    }
    template <class T>
    static void download(const T* from, std::span<T> to) {
        static_assert(std::is_trivially_copyable_v<T>);
        if (to.empty()) { return; }
        cuda::download<T>(from, to.data(), to.size());
    }
};

/// Orders a backend's stream with the transport's reduction_stream(), on which gradients of replicas are added.
class reduction_order {
public:
    /// Throws input_error for a host-memory transport.
    template <class B>
    reduction_order(B& math, const any_transport& transport) : main_{math.stream()}, on_{reductions_of(transport)} {}

    /// Makes later additions wait for all work now in the backend's stream.
    void follow() {
        reached_.record(main_);
        reached_.block(on_);
    }
    /// Makes work enqueued on the backend's stream from now on wait for all additions so far.
    void lead() {
        reached_.record(on_);
        reached_.block(main_);
    }
    [[nodiscard]] stream_clock::mark now(stream_clock& clock) const { return clock.now(on_); }

protected:
    /// The stream of the additions.
    [[nodiscard]] cudaStream_t stream() const noexcept { return on_; }

private:
    [[nodiscard]] static cudaStream_t reductions_of(const any_transport& transport) {
        void* const stream = transport.streams().reductions;
        if (stream == nullptr) {
            throw input_error{"pulse: a host-memory transport has no device streams; use a device transport"};
        }
        return static_cast<cudaStream_t>(stream);
    }

    cudaStream_t main_;
    cudaStream_t on_;
    event reached_{};
};

} // namespace pulse::cuda
