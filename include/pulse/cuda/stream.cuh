#pragma once

#include <cuda_runtime.h>

#include <pulse/core/owner.hpp>
#include <pulse/cuda/error.cuh>
#include <pulse/cuda/event.cuh>

namespace pulse::cuda {

/// A queue of work on one device, which runs in order and concurrently with other streams. The destructor does not
/// wait; work still in the queue is completed.
class stream {
public:
    /// On the calling thread's device; never ordered with the default stream. Among waiting kernels, those of the
    /// stream with the lowest priority number start first.
    explicit stream(int priority = 0) {
        check(cudaStreamCreateWithPriority(handle_.place(), cudaStreamNonBlocking, priority),
              "cudaStreamCreateWithPriority");
    }

    /// Blocks the calling thread until all work is done. Reports errors of that work.
    void synchronize() const { check(cudaStreamSynchronize(get()), "cudaStreamSynchronize"); }

    /// Makes work enqueued from now on wait for the event.
    void wait(const event& point) const { point.block(get()); }

    /// Makes work enqueued from now on wait for all work now in the other stream.
    void wait(const stream& other) const {
        event point;
        point.record(other.get());
        point.block(get());
    }

    /// Whether all work is done; does not wait.
    [[nodiscard]] bool idle() const {
        const cudaError_t status = cudaStreamQuery(get());
        if (status == cudaErrorNotReady) {
            static_cast<void>(cudaGetLastError());
            return false;
        }
        check(status, "cudaStreamQuery");
        return true;
    }

    [[nodiscard]] cudaStream_t get() const noexcept { return handle_.get(); }

private:
    owner<cudaStream_t, cudaStreamDestroy> handle_{};
};

} // namespace pulse::cuda
