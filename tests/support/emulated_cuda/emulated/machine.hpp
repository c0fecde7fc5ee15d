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

/// What the calls of the emulated runtime work on: streams with the operations that they still have to do, captures,
/// memory, and how a call runs and refuses. All of it is read and written under one lock, which api() holds.
namespace emulated_cuda {

using operation = std::function<void()>;

struct graph_node {
    operation run; ///< empty: only an order
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
    std::shared_ptr<capture> in; ///< recorded while capturing: the nodes instead
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
    std::size_t maker{};          ///< the thread: a rank that is one has a device of its own in truth
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
    bool untouched{}; ///< address space alone, of a counted device
};

struct device {
    std::recursive_mutex guard;
    std::map<std::uintptr_t, allocation> memory;
    std::set<cudaStream_t> streams;
    std::set<cudaEvent_t> events;
    std::vector<std::shared_ptr<capture>> captures;
    std::set<std::pair<std::size_t, const void*>> kernels_loaded; ///< by the thread whose device has them
    std::map<const void*, std::size_t> allowed_shared_bytes;      ///< by kernel
    std::size_t shared_bytes_limit{227 * 1024};
    CUstream_st default_stream;
    std::size_t device_bytes{};
    std::size_t pinned_bytes{};
    std::int64_t kernels{};
    std::int64_t waits{};
    int depth{}; ///< of execution
    cudaError_t deferred{cudaSuccess};
    std::string why; ///< of the last kernel that failed
    counted_device counted;
};

/// The one device of the process.
device& the();

/// What cudaGetLastError gives to this thread.
cudaError_t& last_error();

/// Whether queries of this thread may say that a point of a stream is reached; see runtime.hpp.
bool& tells_what_is_done();

/// A number for each thread that asked; under the lock.
std::size_t this_thread();

struct runtime_error_code {
    cudaError_t code;
};

[[noreturn]] inline void refuse(cudaError_t code) { throw runtime_error_code{code}; }

/// An operation cannot go on before another thread has done something; it stays where it is in its stream.
struct not_ready {};

/// Every call: under the lock; what it refuses is its result and the last error. Where an operation is not ready, the
/// call is made again until it is: what waits for streams may be repeated.
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

/// While one lives, work of the device runs and its memory may be looked at.
class execution {
public:
    execution();
    execution(const execution&) = delete;
    execution& operator=(const execution&) = delete;
    ~execution();
};

/// The stream or event of a handle; refuses what is none.
CUstream_st& stream_of(cudaStream_t stream);
CUevent_st& event_of(cudaEvent_t event);

/// Runs a stream's operations until so many have run since it was made.
void run_until(CUstream_st& stream, std::uint64_t position);
/// The same, counted as a wait of the host if anything is left to do.
void await(CUstream_st& stream, std::uint64_t position);
/// Runs what an event stands for.
void run_mark(const mark& where);

void run_all();

/// What a call does that waits for the calling thread's device: it is not ready while a message is under way in a
/// stream that the thread has made. Other work stays where it is, so that an order that nobody asked for does not come
/// by luck.
void drain();

/// Calls that capturing forbids, to the thread that captures or to all.
void require_no_capture();
void require_not_captured(const CUstream_st& stream);
void require_not_captured(const CUevent_st& event);

/// Puts work behind all that the stream has, or into its capture.
void enqueue(CUstream_st& stream, operation run);
/// The same with work of the device, which a counted device is told of instead.
void enqueue(CUstream_st& stream, const work& what, operation run);

/// For what must not fail: the error comes with the next call.
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

/// The allocation that holds all of [address, address + bytes); null: none, or memory that CUDA does not know.
const allocation* allocation_of(const void* address, std::size_t bytes);

/// Refuses every device but the one that there is.
void require_device(int device);

} // namespace emulated_cuda
