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
/// Streams are lazy: what is put into a stream runs when somebody needs it (synchronisation, a blocking copy, an event
/// that is waited for, a query), in the thread that needs it, and then only what that needs: two streams keep no order
/// but the one that events give. So a missing wait is wrong data, not luck. Fresh device memory, pinned memory and
/// dynamic shared memory are NaN in every floating-point type. Under AddressSanitizer the host may not touch device
/// memory, and kernels nothing beyond an allocation. Pageable host memory is copied as CUDA copies it: from it at once,
/// to it before the call returns. cudaMemcpy and cudaMemset go into
/// the default stream and, as in CUDA, do not wait for what only the device does: other streams are not ordered with it
/// (pulse::cuda::upload waits). Captured graphs are replayed by need, the branch that was captured last first. The
/// first launch of a kernel, a graph that is made, a plan of cuDNN and memory that is freed wait until the device
/// receives and sends nothing, as they may in CUDA.
namespace emulated_cuda {

/// What a stream is given to do.
struct work {
    const void* kernel{};                   ///< of pulse; null: what `call` names
    std::span<const std::byte> arguments{}; ///< of the kernel
    std::string_view call{};                ///< "copy" and "fill" of the runtime; a library's
    std::int64_t bytes{};                   ///< of the device's memory that the call reads and writes
    std::int64_t flops{};                   ///< of a library's matrix products and convolutions
};

/// Puts a kernel into a stream, or says what is wrong with the sizes, as cudaLaunchKernel would. `what.kernel` names
/// it: the first launch of each loads it, which drains the device; null is there already.
[[nodiscard]] cudaError_t enqueue_kernel(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                                         std::function<void()> body, const work& what = {});

inline constexpr std::size_t memory_bytes = std::size_t{8} << 30; ///< of the device, unless it is counted_device
inline constexpr int multiprocessors = 3; ///< few, so that loops over a grid that fills the device go round

/// A device that does nothing, so that programs can be counted that no host has the memory or the time for: `note` is
/// told of all work when a stream is given it, and what that returns is called where the work would be done, again for
/// every replay of a graph. Device memory is address space that nobody can touch, pinned memory is 0, and what the host
/// reads back stays as it was.
struct counted_device {
    int multiprocessors{emulated_cuda::multiprocessors};
    std::size_t memory_bytes{emulated_cuda::memory_bytes};
    std::function<std::function<void()>(const work&)> note{};
};
/// The process's device from now on; without a note, one that works. Throws std::logic_error where memory is allocated
/// or a stream has work.
void count_on(counted_device counted);

/// While one lives, the process's device is a counted one; then one that works.
class counting {
public:
    explicit counting(counted_device on) { count_on(std::move(on)); }
    counting(const counting&) = delete;
    counting& operator=(const counting&) = delete;
    ~counting();
};

/// Bytes of the allocation that begins at an address; 0: none does.
[[nodiscard]] std::int64_t allocated_bytes(const void* address);

/// Kernels that have run in this process.
[[nodiscard]] std::int64_t executed_kernels();

/// From now on events tell of no time but what a kernel's work says that it takes (take_time); or again of the host's.
void count_time_only(bool only);
/// Called by work: what it does takes so long, besides what the host takes for it.
void take_time(double seconds);

/// How often the host waited for a stream or an event that was not done.
[[nodiscard]] std::int64_t host_waits();

/// Device memory that is allocated now, and pinned host memory.
[[nodiscard]] std::size_t device_bytes();
[[nodiscard]] std::size_t pinned_bytes();

/// Whether an address is in memory of the device.
[[nodiscard]] bool is_device(const void* address);

/// What of a stream has not run.
[[nodiscard]] std::size_t pending(cudaStream_t stream);

/// Whether event queries of the calling thread may say that the event is reached; else they say that it is not, as
/// where the device is slow and the host looks too early.
void answer_queries(bool answers);

/// What a call does that waits for the calling thread's device: it returns when no message is under way there.
[[nodiscard]] cudaError_t drain_device();

/// What a wait for the whole device does to captures: all end, of whatever thread and mode. Whether there were none.
/// cudaStreamEndCapture says `how`.
bool end_captures(cudaError_t how = cudaErrorStreamCaptureInvalidated);

inline constexpr std::size_t plain_shared_bytes = 48 * 1024; ///< of a block, for a kernel that was allowed no more

/// What a kernel may be allowed at most, also where it was allowed more before: 227 KiB at first.
void set_shared_bytes_limit(std::size_t bytes);

} // namespace emulated_cuda
