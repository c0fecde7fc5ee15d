#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include <cuda_runtime.h>

/// The CUDA runtime in one process, without a device.
///
/// Streams are lazy: an operation runs when somebody needs it (synchronisation, a blocking copy, an awaited event, a
/// query), in the thread that needs it, together with only what it depends on. Two streams are ordered by events alone,
/// so a missing wait yields wrong data reliably. Fresh device memory, pinned memory and dynamic shared memory are NaN
/// in every floating-point type. Under AddressSanitizer the host may not touch device memory, and kernels may not leave
/// an allocation. Pageable host memory is copied as CUDA does: read at once, written before the call returns.
/// cudaMemcpy and cudaMemset use the default stream and, as in CUDA, do not wait for device-only work: other streams
/// are not ordered with it (pulse::cuda::upload waits). Captured graphs replay on demand, the branch that was captured
/// last first. The first launch of a kernel, the creation of a graph or of a cuDNN plan, and the freeing of memory wait
/// until the device receives and sends nothing, as they may in CUDA.
namespace emulated_cuda {

/// One operation that a stream is given.
struct work {
    const void* kernel{};                   ///< one of pulse; null: what `call` names
    std::span<const std::byte> arguments{}; ///< of the kernel
    std::string_view call{};                ///< "copy" and "fill" of the runtime, or a library's
    std::int64_t bytes{};                   ///< device memory that the call reads and writes
    std::int64_t flops{};                   ///< of a library's matrix product or convolution
};

/// Enqueues a kernel, or returns the error of cudaLaunchKernel for wrong sizes. `what.kernel` identifies it: its first
/// launch loads it, which drains the device; null counts as loaded.
[[nodiscard]] cudaError_t enqueue_kernel(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                                         std::function<void()> body, const work& what = {});

inline constexpr std::size_t memory_bytes = std::size_t{8} << 30; ///< of the device, unless it is a counted_device
inline constexpr int multiprocessors = 3; ///< few, so that grid-stride loops of a full device run more than once

/// A device that does no work, for counting programs that exceed the host's memory or time. `note` receives all work
/// when a stream is given it; the function that it returns is called where the work would run, again for every replay
/// of a graph. Device memory is address space that nobody can touch, pinned memory is 0, and readbacks leave the host's
/// memory as it was.
struct counted_device {
    int multiprocessors{emulated_cuda::multiprocessors};
    std::size_t memory_bytes{emulated_cuda::memory_bytes};
    std::function<std::function<void()>(const work&)> note{};
    int devices{1};   ///< that are told apart; they share their memory
    int most_peers{}; ///< whose memory a device may access
};
/// Replaces the process's device; a counted_device without a note is one that works. Throws std::logic_error while
/// memory is allocated or a stream has work.
void count_on(counted_device counted);

/// While one lives, the process's device is a counted one; afterwards one that works.
class counting {
public:
    explicit counting(counted_device on) { count_on(std::move(on)); }
    counting(const counting&) = delete;
    counting& operator=(const counting&) = delete;
    ~counting();
};

/// Bytes of the allocation that begins at an address; 0 for none.
[[nodiscard]] std::int64_t allocated_bytes(const void* address);

/// Kernels that this process has run.
[[nodiscard]] std::int64_t executed_kernels();

/// Makes events report only the times passed to take_time, or again the host's times.
void count_time_only(bool only);
/// Called by work: adds device time on top of the time that the host takes.
void take_time(double seconds);

/// How often the host waited for a stream or an event that was not done.
[[nodiscard]] std::int64_t host_waits();

/// Currently allocated device memory, and pinned host memory.
[[nodiscard]] std::size_t device_bytes();
[[nodiscard]] std::size_t pinned_bytes();

/// Whether an address is in device memory.
[[nodiscard]] bool is_device(const void* address);

/// Operations of a stream that have not run.
[[nodiscard]] std::size_t pending(cudaStream_t stream);

/// Whether event queries of the calling thread may report that an event is reached; otherwise they answer "not yet", as
/// on a slow device that the host asks too early.
void answer_queries(bool answers);

/// The wait of a call that synchronizes the calling thread's device: returns when no message is in flight there.
[[nodiscard]] cudaError_t drain_device();

/// The effect of a wait for the whole device on captures: it ends all, of whatever thread and mode, and their
/// cudaStreamEndCapture returns `how`. Returns whether there were none.
bool end_captures(cudaError_t how = cudaErrorStreamCaptureInvalidated);

inline constexpr std::size_t plain_shared_bytes = 48 * 1024; ///< of a block, unless the kernel was allowed more

/// Sets the most that a kernel may be allowed, even if it was allowed more before; 227 KiB by default.
void set_shared_bytes_limit(std::size_t bytes);

} // namespace emulated_cuda
