#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/error.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/kernels/pointwise.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/cuda/step_graphs.cuh>
#include <pulse/cuda/stream_clock.cuh>

namespace pulse::cuda {

/// Memory and execution on a device: pulse::space_of of a backend that runs on one, as `using space = device_space`.
///
/// Memory is of the calling thread's device. The backend has stream(), which its operations use.
struct device_space {
    /// Values that begin as 0; `Each` is copied as bytes.
    template <class Each>
    class array {
    public:
        array() = default;
        explicit array(std::size_t n) : memory_{n} {
            if (n == 0) { return; }
            check(cudaMemset(memory_.data(), 0, memory_.bytes()), "cudaMemset");
            // Streams of ours are not ordered with the default one.
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
    /// Adds gradients of replicas in the transport's reduction_stream(), beside the backend's stream.
    template <class Each>
    class adder {
    public:
        template <class B, class Transport>
        adder(B& math, Transport& transport) :
            main_{math.stream()}, on_{transport.reduction_stream(), properties_of(current_device()).multiprocessors,
                                      nullptr} {}

        /// What follows is behind all that is in the backend's stream.
        void follow() {
            reached_.record(main_);
            reached_.block(on_.stream);
        }
        /// y += x over n elements.
        void add(std::int64_t n, const Each* x, Each* y) const { cuda::add<Each>(on_, n, x, y); }
        /// What is put into the backend's stream from now on is behind all that was added.
        void lead() {
            reached_.record(on_.stream);
            reached_.block(main_);
        }
        [[nodiscard]] stream_clock::mark now(stream_clock& clock) const { return clock.now(on_.stream); }

    private:
        cudaStream_t main_;
        queue on_;
        event reached_{};
    };

    /// Copies from host memory to the device, and back; done on return. What a stream has still to do to either side must be
    /// done before (stream::synchronize).
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

} // namespace pulse::cuda
