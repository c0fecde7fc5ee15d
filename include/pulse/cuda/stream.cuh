#pragma once

#include <utility>

#include <cuda_runtime.h>

#include <pulse/cuda/error.cuh>
#include <pulse/cuda/event.cuh>

namespace pulse::cuda {

/// A queue of work on one device: what is put in runs in order, beside the work of other streams.
class stream {
public:
    /// Of the calling thread's device; never ordered with the default stream. The lower the priority's number, the
    /// sooner its kernels start where several wait.
    explicit stream(int priority = 0) {
        check(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking, priority), "cudaStreamCreateWithPriority");
    }
    stream(stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    stream& operator=(stream&& other) noexcept {
        stream taken(std::move(other));
        std::swap(handle_, taken.handle_);
        return *this;
    }
    /// Work that is still in the stream ends first, without anybody waiting for it here.
    ~stream() {
        if (handle_ != nullptr) { static_cast<void>(cudaStreamDestroy(handle_)); }
    }

    /// The calling thread waits until all work is done. Errors of that work come out here.
    void synchronize() const { check(cudaStreamSynchronize(handle_), "cudaStreamSynchronize"); }

    /// Work put in from now on starts after the event's point.
    void wait(const event& point) const { point.block(handle_); }

    /// Work put in from now on starts after all that is in the other stream now.
    void wait(const stream& other) const {
        event point;
        point.record(other.get());
        point.block(handle_);
    }

    /// Whether all work is done; does not wait.
    [[nodiscard]] bool idle() const {
        const cudaError_t status = cudaStreamQuery(handle_);
        if (status == cudaErrorNotReady) {
            static_cast<void>(cudaGetLastError());
            return false;
        }
        check(status, "cudaStreamQuery");
        return true;
    }

    [[nodiscard]] cudaStream_t get() const noexcept { return handle_; }

private:
    cudaStream_t handle_{};
};

} // namespace pulse::cuda
