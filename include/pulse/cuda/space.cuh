#pragma once

#include <cstdint>

#include <pulse/cuda/device.cuh>
#include <pulse/cuda/kernels/pointwise.cuh>
#include <pulse/cuda/memory_space.cuh>
#include <pulse/cuda/queue.cuh>

namespace pulse::cuda {

/// Memory and execution on a device: the pulse::space_of of a backend that declares `using space = device_space`.
///
/// Memory is on the calling thread's device. The backend has a stream(), which its operations use.
struct device_space : memory_space {
    /// Adds gradients of replicas on the transport's reduction_stream(), concurrently with the backend's stream.
    template <class Each>
    class adder : public reduction_order {
    public:
        template <class B>
        adder(B& math, const any_transport& transport) :
            reduction_order{math, transport}, multiprocessors_{properties_of(current_device()).multiprocessors} {}

        /// y += x over n elements.
        void add(std::int64_t n, const Each* x, Each* y) const {
            cuda::add<Each>({stream(), multiprocessors_, nullptr}, n, x, y);
        }

    private:
        int multiprocessors_;
    };
};

} // namespace pulse::cuda
