#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include <emulated/block.hpp>
#include <emulated/runtime.hpp>

/// The state of the emulated runtime: streams with their pending operations, captures and memory; and how a call runs
/// and fails. One lock, which api() holds, guards all of it.
namespace emulated_cuda {

using operation = std::function<void()>;

struct graph_node {
    operation run; ///< empty: ordering only
    std::vector<std::size_t> after;
};

struct capture {
    std::vector<graph_node> nodes;
    cudaStream_t origin{};
    unsigned long long id{};
    std::set<cudaStream_t> streams;
    cudaError_t broken{cudaSuccess};
    cudaStreamCaptureMode mode{};
    std::size_t thread{};
};

/// Where a stream was when an event was recorded.
struct mark {
    cudaStream_t stream{};
    std::uint64_t serial{};      ///< of the stream
    std::uint64_t position{};    ///< operations that must have run
    std::shared_ptr<capture> in; ///< when recorded during a capture; `nodes` then replaces the position
    std::vector<std::size_t> nodes;
};

struct stamp {
    std::chrono::steady_clock::time_point at{};
    bool set{};
};

} // namespace emulated_cuda

// CUDA's opaque handles
struct CUstream_st {
    std::deque<emulated_cuda::operation> operations;
    std::uint64_t issued{};
    std::uint64_t completed{};
    std::uint64_t serial{}; ///< a later stream may have the same address
    int priority{};
    std::size_t maker{};          ///< the creating thread: a rank that is a thread stands for its own device
    std::uint64_t last_message{}; ///< the position behind the last group of messages
    bool running{};
    std::shared_ptr<emulated_cuda::capture> capturing;
    std::vector<std::size_t> last; ///< nodes that the next captured node follows
};

struct CUevent_st {
    bool recorded{};
    bool timing{};
    emulated_cuda::mark where;
    std::shared_ptr<emulated_cuda::stamp> when{};
};

struct CUgraph_st {
    std::vector<emulated_cuda::graph_node> nodes;
    std::vector<std::size_t> last;
};

struct CUgraphExec_st {
    std::shared_ptr<const CUgraph_st> graph;
};

namespace emulated_cuda {

struct allocation {
    std::size_t bytes{};
    bool device{};
    bool untouched{}; ///< address space only, of a counted device
};

struct device {
    std::recursive_mutex guard;
    std::map<std::uintptr_t, allocation> memory;
    std::set<cudaStream_t> streams;
    std::set<cudaEvent_t> events;
    std::vector<std::shared_ptr<capture>> captures;
    std::set<std::pair<std::size_t, const void*>> kernels_loaded; ///< with the thread whose device has them
    std::map<const void*, std::size_t> allowed_shared_bytes;      ///< by kernel
    std::size_t shared_bytes_limit{227 * 1024};
    CUstream_st default_stream;
    std::size_t device_bytes{};
    std::size_t pinned_bytes{};
    std::int64_t kernels{};
    std::int64_t waits{};
    int depth{}; ///< of execution
    cudaError_t deferred{cudaSuccess};
    std::string why; ///< the error of the last kernel that failed
    counted_device counted;
    std::map<int, std::set<int>> peers; ///< whose memory a device may access
};

/// The one device of the process.
device& the();

/// What cudaGetLastError returns to this thread.
cudaError_t& last_error();

/// Whether event queries of this thread may report that an event is reached; see answer_queries.
bool& tells_what_is_done();

/// The number of the calling thread, in order of the first call; needs the lock.
std::size_t this_thread();

struct runtime_error_code {
    cudaError_t code;
};

[[noreturn]] inline void refuse(cudaError_t code) { throw runtime_error_code{code}; }

/// An operation must wait for another thread; it stays at the head of its stream.
struct not_ready {};

/// Runs a call under the lock; a refusal becomes its result and the last error. A call that hits an operation that is
/// not ready is repeated until it is, so the call must be safe to repeat.
template <class Call>
cudaError_t api(Call&& call) {
    std::unique_lock lock(the().guard);
    cudaError_t status = cudaSuccess;
    for (bool again = true; again;) try {
            again = false;
            call();
        } catch (const not_ready&) {
            lock.unlock();
            std::this_thread::sleep_for(std::chrono::microseconds{20});
            lock.lock();
            again = true;
        } catch (const runtime_error_code& refused) { status = refused.code; } catch (const kernel_error& failed) {
            the().why = failed.what();
            status = cudaErrorLaunchFailure;
        } catch (const std::bad_alloc&) { status = cudaErrorMemoryAllocation; }
    if (status == cudaSuccess && the().deferred != cudaSuccess) { status = std::exchange(the().deferred, cudaSuccess); }
    if (status != cudaSuccess) { last_error() = status; }
    return status;
}

/// While one lives, device work runs and its memory may be accessed.
class execution {
public:
    execution();
    execution(const execution&) = delete;
    execution& operator=(const execution&) = delete;
    ~execution();
};

/// The stream or event of a handle; refuses an invalid one.
CUstream_st& stream_of(cudaStream_t stream);
CUevent_st& event_of(cudaEvent_t event);

/// Runs a stream until `position` operations have completed since its creation.
void run_until(CUstream_st& stream, std::uint64_t position);
/// The same, counted as a wait of the host if anything is left to run.
void await(CUstream_st& stream, std::uint64_t position);
/// Runs everything that an event waits for.
void run_mark(const mark& where);

void run_all();

/// The wait of a call that synchronizes the calling thread's device: not ready while a message is in flight in a stream
/// that the thread created. Other work stays pending, so that no unrequested order arises by luck.
void drain();

/// Refuses calls that a capture forbids to the capturing thread, or to all.
void require_no_capture();
void require_not_captured(const CUstream_st& stream);
void require_not_captured(const CUevent_st& event);

/// Appends work to the stream, or to its capture.
void enqueue(CUstream_st& stream, operation run);
/// The same for device work, which a counted device only notes.
void enqueue(CUstream_st& stream, const work& what, operation run);

/// For calls that must not fail: the next call reports the error.
template <class Call>
void deferring(Call&& call) {
    try {
        call();
    } catch (const kernel_error& failed) {
        the().why = failed.what();
        the().deferred = cudaErrorLaunchFailure;
        std::fprintf(stderr, "emulated CUDA: %s\n", failed.what());
    } catch (const runtime_error_code& refused) { the().deferred = refused.code; }
}

/// The allocation that holds all of [address, address + bytes); null for none, or for memory that CUDA does not know.
const allocation* allocation_of(const void* address, std::size_t bytes);

/// Refuses every device except the only one.
void require_device(int device);

} // namespace emulated_cuda
