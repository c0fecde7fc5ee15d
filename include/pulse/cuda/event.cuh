#pragma once

#include <cuda_runtime.h>

#include <pulse/core/owner.hpp>
#include <pulse/cuda/error.cuh>

namespace pulse::cuda {

/// Whether an event records the time at which it was reached; one that does not costs less.
enum class timing : bool { off, on };

/// A point in a stream's work that others can wait for; two of them measure the time between them.
class event {
public:
    /// On the calling thread's device.
    explicit event(timing keeps = timing::off) {
        check(
            cudaEventCreateWithFlags(handle_.place(), keeps == timing::on ? cudaEventDefault : cudaEventDisableTiming),
            "cudaEventCreateWithFlags");
    }

    /// Sets the point after all work now in the stream.
    void record(cudaStream_t on) { check(cudaEventRecord(get(), on), "cudaEventRecord"); }

    /// Makes work enqueued on `later` from now on wait for this point; the calling thread does not wait.
    void block(cudaStream_t later) const { check(cudaStreamWaitEvent(later, get(), 0), "cudaStreamWaitEvent"); }

    /// Blocks the calling thread until the point is reached.
    void synchronize() const { check(cudaEventSynchronize(get()), "cudaEventSynchronize"); }

    /// Whether the point is reached; does not wait.
    [[nodiscard]] bool reached() const {
        const cudaError_t status = cudaEventQuery(get());
        if (status == cudaErrorNotReady) {
            static_cast<void>(cudaGetLastError());
            return false;
        }
        check(status, "cudaEventQuery");
        return true;
    }

    [[nodiscard]] cudaEvent_t get() const noexcept { return handle_.get(); }

private:
    owner<cudaEvent_t, cudaEventDestroy> handle_{};
};

/// Seconds between two events with timing, both reached.
[[nodiscard]] inline double seconds_between(const event& from, const event& to) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, from.get(), to.get()), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
}

} // namespace pulse::cuda
