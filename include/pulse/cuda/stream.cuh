#pragma once

#include <cuda_runtime.h>

#include <pulse/core/owner.hpp>
#include <pulse/cuda/error.cuh>
#include <pulse/cuda/event.cuh>

namespace pulse::cuda {

/// A queue of work on one device: what is put in runs in order, beside the work of other streams. What is still in it
/// when this ends is done first, without anybody waiting for it.
class stream {
public:
    /// Of the calling thread's device; never ordered with the default stream. The lower the priority's number, the
    /// sooner its kernels start where several wait.
    explicit stream(int priority = 0) {
        check(cudaStreamCreateWithPriority(handle_.place(), cudaStreamNonBlocking, priority),
              "cudaStreamCreateWithPriority");
    }

    /// The calling thread waits until all work is done. Errors of that work come out here.
    void synchronize() const { check(cudaStreamSynchronize(get()), "cudaStreamSynchronize"); }

    /// Work put in from now on starts after the event's point.
    void wait(const event& point) const { point.block(get()); }

    /// Work put in from now on starts after all that is in the other stream now.
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
