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

/// What of a device_space needs no kernel, so that a host compiler reads it too.
///
/// Memory is of the calling thread's device.
struct memory_space {
    static constexpr weight_order weights = weight_order::channels_last;

    /// Values that begin as 0; `Each` is copied as bytes.
    template <class Each>
    class array {
    public:
        array() = default;
        explicit array(std::size_t n) : memory_{n} {
            if (n == 0) { return; }
            check(cudaMemset(memory_.data(), 0, memory_.bytes()), "cudaMemset");
            // Streams of ours are not ordered with the default one; so their captures in other threads go on.
            check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
        }
        [[nodiscard]] Each* data() const noexcept { return memory_.data(); }
        [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }

    private:
        device_memory<Each> memory_;
    };

    /// Memory for a step, not initialised, that begins at a multiple of 256.
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
    /// Copies from host memory to the device, and back; done on return. What a stream has still to do to either side
    /// must be done before (stream::synchronize).
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

/// The order between a backend's stream and the transport's reduction_stream(), in which gradients of replicas are
/// added.
class reduction_order {
public:
    /// Throws input_error for a transport of host memory.
    template <class B>
    reduction_order(B& math, const any_transport& transport) : main_{math.stream()}, on_{reductions_of(transport)} {}

    /// What follows is behind all that is in the backend's stream.
    void follow() {
        reached_.record(main_);
        reached_.block(on_);
    }
    /// What is put into the backend's stream from now on is behind all that was added.
    void lead() {
        reached_.record(on_);
        reached_.block(main_);
    }
    [[nodiscard]] stream_clock::mark now(stream_clock& clock) const { return clock.now(on_); }

protected:
    /// Where the additions go.
    [[nodiscard]] cudaStream_t stream() const noexcept { return on_; }

private:
    [[nodiscard]] static cudaStream_t reductions_of(const any_transport& transport) {
        void* const stream = transport.streams().reductions;
        if (stream == nullptr) { throw input_error{"pulse: a transport of host memory has no tensors of a device"}; }
        return static_cast<cudaStream_t>(stream);
    }

    cudaStream_t main_;
    cudaStream_t on_;
    event reached_{};
};

} // namespace pulse::cuda
