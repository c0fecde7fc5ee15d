#include <emulated/runtime.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <emulated/block.hpp>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace emulated_cuda {
namespace {

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

} // namespace
} // namespace emulated_cuda

// CUDA's opaque handles
struct CUstream_st {
    std::deque<emulated_cuda::operation> operations;
    std::uint64_t issued{};
    std::uint64_t completed{};
    std::uint64_t serial{}; ///< a later stream may have the same address
    int priority{};
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
namespace {

struct allocation {
    std::size_t bytes{};
    bool device{};
};

struct device {
    std::recursive_mutex guard;
    std::map<std::uintptr_t, allocation> memory;
    std::set<cudaStream_t> streams;
    std::set<cudaEvent_t> events;
    std::vector<std::shared_ptr<capture>> captures;
    CUstream_st default_stream;
    std::size_t device_bytes{};
    std::size_t pinned_bytes{};
    std::int64_t kernels{};
    std::int64_t waits{};
    int depth{}; ///< of execution
    cudaError_t deferred{cudaSuccess};
    std::string why; ///< of the last kernel that failed
};

device& the() {
    static device instance;
    return instance;
}

thread_local cudaError_t last_error = cudaSuccess;

std::size_t this_thread() {
    static std::size_t count = 0;
    static thread_local const std::size_t mine = ++count; // under the lock
    return mine;
}

struct runtime_error_code {
    cudaError_t code;
};

[[noreturn]] void refuse(cudaError_t code) { throw runtime_error_code{code}; }

/// Every call: under the lock; what it refuses is its result and the last error.
template <class Call>
cudaError_t api(Call&& call) {
    const std::scoped_lock lock(the().guard);
    cudaError_t status = cudaSuccess;
    try {
        call();
    } catch (const runtime_error_code& refused) { status = refused.code; } catch (const kernel_error& failed) {
        the().why = failed.what();
        status = cudaErrorLaunchFailure;
    } catch (const std::bad_alloc&) { status = cudaErrorMemoryAllocation; }
    if (status == cudaSuccess && the().deferred != cudaSuccess) { status = std::exchange(the().deferred, cudaSuccess); }
    if (status != cudaSuccess) { last_error = status; }
    return status;
}

/// The host may look at device memory only while the device runs.
void open_memory([[maybe_unused]] bool open) {
#if defined(__SANITIZE_ADDRESS__)
    for (const auto& [address, block] : the().memory) {
        if (!block.device) { continue; }
        auto* start = reinterpret_cast<void*>(address);
        open ? ASAN_UNPOISON_MEMORY_REGION(start, block.bytes) : ASAN_POISON_MEMORY_REGION(start, block.bytes);
    }
#endif
}

struct execution {
    execution() {
        if (the().depth++ == 0) { open_memory(true); }
    }
    execution(const execution&) = delete;
    execution& operator=(const execution&) = delete;
    ~execution() {
        if (--the().depth == 0) { open_memory(false); }
    }
};

CUstream_st& stream_of(cudaStream_t stream) {
    if (stream == nullptr || stream == cudaStreamLegacy) { return the().default_stream; }
    if (!the().streams.contains(stream)) { refuse(cudaErrorInvalidResourceHandle); }
    return *stream;
}

CUevent_st& event_of(cudaEvent_t event) {
    if (!the().events.contains(event)) { refuse(cudaErrorInvalidResourceHandle); }
    return *event;
}

void run_one(CUstream_st& stream) {
    const operation next = std::move(stream.operations.front());
    stream.operations.pop_front();
    struct count {
        std::uint64_t& completed;
        ~count() { ++completed; }
    } const counted{stream.completed};
    next();
}

void run_until(CUstream_st& stream, std::uint64_t position) {
    const execution running;
    while (stream.completed < position) {
        if (stream.operations.empty()) { refuse(cudaErrorUnknown); } // an operation waits for itself
        run_one(stream);
    }
}

/// The host waits, if anything is left to do.
void await(CUstream_st& stream, std::uint64_t position) {
    if (stream.completed < position) { ++the().waits; }
    run_until(stream, position);
}

void run_mark(const mark& where) {
    CUstream_st* stream = where.stream == nullptr ? &the().default_stream : where.stream;
    // a destroyed stream has run to its end
    if (where.stream != nullptr && (!the().streams.contains(where.stream) || stream->serial != where.serial)) {
        return;
    }
    run_until(*stream, where.position);
}

void run_all() {
    run_until(the().default_stream, the().default_stream.issued);
    for (cudaStream_t stream : the().streams) { run_until(*stream, stream->issued); }
}

/// Calls that capturing forbids, to the thread that captures or to all.
void require_no_capture() {
    for (const auto& open : the().captures) {
        if (open->mode == cudaStreamCaptureModeRelaxed) { continue; }
        if (open->mode == cudaStreamCaptureModeThreadLocal && open->thread != this_thread()) { continue; }
        open->broken = cudaErrorStreamCaptureInvalidated;
        refuse(cudaErrorStreamCaptureUnsupported);
    }
}

void require_not_captured(const CUstream_st& stream) {
    if (stream.capturing != nullptr) {
        stream.capturing->broken = cudaErrorStreamCaptureInvalidated;
        refuse(cudaErrorStreamCaptureUnsupported);
    }
}

void enqueue(CUstream_st& stream, operation run) {
    if (stream.capturing != nullptr) {
        stream.capturing->nodes.push_back({std::move(run), stream.last});
        stream.last = {stream.capturing->nodes.size() - 1};
        return;
    }
    stream.operations.push_back(std::move(run));
    ++stream.issued;
}

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
const allocation* allocation_of(const void* address, std::size_t bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    auto found = the().memory.upper_bound(at);
    if (found == the().memory.begin()) { return nullptr; }
    --found;
    if (at >= found->first + found->second.bytes) { return nullptr; }
    if (at + bytes > found->first + found->second.bytes) { refuse(cudaErrorInvalidValue); }
    return &found->second;
}

bool is_device(const void* address, std::size_t bytes) {
    const allocation* found = allocation_of(address, bytes);
    return found != nullptr && found->device;
}

void* allocate(std::size_t bytes, bool device) {
    require_no_capture();
    if (bytes == 0) { return nullptr; }
    if (device && bytes > memory_bytes - the().device_bytes) { refuse(cudaErrorMemoryAllocation); }
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, bytes) != 0) { refuse(cudaErrorMemoryAllocation); }
    std::memset(memory, 0xff, bytes);
    the().memory[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, device};
    (device ? the().device_bytes : the().pinned_bytes) += bytes;
#if defined(__SANITIZE_ADDRESS__)
    if (device && the().depth == 0) { ASAN_POISON_MEMORY_REGION(memory, bytes); }
#endif
    return memory;
}

void release(void* memory, bool device) {
    if (memory == nullptr) { return; }
    require_no_capture();
    const auto found = the().memory.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == the().memory.end() || found->second.device != device) { refuse(cudaErrorInvalidValue); }
    deferring(run_all);
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(memory, found->second.bytes);
#endif
    (device ? the().device_bytes : the().pinned_bytes) -= found->second.bytes;
    the().memory.erase(found);
    std::free(memory);
}

void check_kind(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const bool to_device = is_device(to, bytes);
    const bool from_device = is_device(from, bytes);
    const bool matches = kind == cudaMemcpyDefault || (kind == cudaMemcpyHostToDevice && to_device && !from_device) ||
                         (kind == cudaMemcpyDeviceToHost && !to_device && from_device) ||
                         (kind == cudaMemcpyDeviceToDevice && to_device && from_device) ||
                         (kind == cudaMemcpyHostToHost && !to_device && !from_device);
    if (!matches) { refuse(cudaErrorInvalidMemcpyDirection); }
}

/// rows of `bytes`, with pitches
void copy(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t bytes, std::size_t rows,
          cudaMemcpyKind kind, cudaStream_t on) {
    CUstream_st& stream = stream_of(on);
    if (bytes == 0 || rows == 0) { return; }
    if (bytes > to_pitch || bytes > from_pitch) { refuse(cudaErrorInvalidPitchValue); }
    check_kind(to, from, (rows - 1) * to_pitch + bytes, cudaMemcpyDefault);
    check_kind(to, from, bytes, kind);
    const auto moves = [=] {
        for (std::size_t row = 0; row < rows; ++row) {
            std::memmove(static_cast<std::byte*>(to) + row * to_pitch,
                         static_cast<const std::byte*>(from) + row * from_pitch, bytes);
        }
    };
    const bool captured = stream.capturing != nullptr;
    if (!captured && allocation_of(from, bytes) == nullptr) { // pageable: read before the call returns
        std::vector<std::byte> staged(bytes * rows);
        for (std::size_t row = 0; row < rows; ++row) {
            std::memcpy(staged.data() + row * bytes, static_cast<const std::byte*>(from) + row * from_pitch, bytes);
        }
        enqueue(stream, [=, data = std::move(staged)] {
            for (std::size_t row = 0; row < rows; ++row) {
                std::memcpy(static_cast<std::byte*>(to) + row * to_pitch, data.data() + row * bytes, bytes);
            }
        });
    } else {
        enqueue(stream, moves);
    }
    if (!captured && allocation_of(to, bytes) == nullptr) { await(stream, stream.issued); }
}

void set(void* to, int value, std::size_t bytes, cudaStream_t on) {
    CUstream_st& stream = stream_of(on);
    if (bytes == 0) { return; }
    if (allocation_of(to, bytes) == nullptr) { refuse(cudaErrorInvalidValue); }
    enqueue(stream, [=] { std::memset(to, value, bytes); });
}

/// Runs what `last` needs, the latest branch first.
void run_graph(const CUgraph_st& graph) {
    std::vector<bool> done(graph.nodes.size());
    std::function<void(std::size_t)> visit = [&](std::size_t n) {
        if (done[n]) { return; }
        done[n] = true;
        for (auto it = graph.nodes[n].after.rbegin(); it != graph.nodes[n].after.rend(); ++it) { visit(*it); }
        if (graph.nodes[n].run) { graph.nodes[n].run(); }
    };
    for (auto it = graph.last.rbegin(); it != graph.last.rend(); ++it) { visit(*it); }
}

/// Whether the last nodes of `from` are among what `to` follows.
bool joined(const capture& all, const std::vector<std::size_t>& from, const std::vector<std::size_t>& to) {
    std::vector<bool> seen(all.nodes.size());
    std::vector<std::size_t> open = to;
    while (!open.empty()) {
        const std::size_t n = open.back();
        open.pop_back();
        if (seen[n]) { continue; }
        seen[n] = true;
        open.insert(open.end(), all.nodes[n].after.begin(), all.nodes[n].after.end());
    }
    for (const std::size_t n : from) {
        if (!seen[n]) { return false; }
    }
    return true;
}

cudaEvent_t make_event(unsigned flags) {
    auto event = std::make_unique<CUevent_st>();
    event->timing = (flags & cudaEventDisableTiming) == 0;
    the().events.insert(event.get());
    return event.release();
}

void require_device(int device) {
    if (device != 0) { refuse(cudaErrorInvalidDevice); }
}

} // namespace

cudaError_t enqueue_kernel(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                           std::function<void()> body) {
    return api([&] {
        CUstream_st& on = stream_of(stream);
        const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
        if (threads == 0 || threads > 1024 || block.z > 64 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
            grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
            refuse(cudaErrorInvalidConfiguration);
        }
        if (shared_bytes > shared_bytes_limit) { refuse(cudaErrorInvalidValue); }
        enqueue(on, [=, run = std::move(body)] {
            ++the().kernels;
            run_grid(grid, block, shared_bytes, run);
        });
    });
}

std::int64_t executed_kernels() {
    const std::scoped_lock lock(the().guard);
    return the().kernels;
}

std::int64_t host_waits() {
    const std::scoped_lock lock(the().guard);
    return the().waits;
}

std::size_t device_bytes() {
    const std::scoped_lock lock(the().guard);
    return the().device_bytes;
}

std::size_t pinned_bytes() {
    const std::scoped_lock lock(the().guard);
    return the().pinned_bytes;
}

bool end_captures() {
    const std::scoped_lock lock(the().guard);
    for (const auto& open : the().captures) { open->broken = cudaErrorStreamCaptureInvalidated; }
    return the().captures.empty();
}

std::size_t pending(cudaStream_t stream) {
    const std::scoped_lock lock(the().guard);
    return stream_of(stream).operations.size();
}

} // namespace emulated_cuda

using namespace emulated_cuda;

extern "C" {

// ---- errors

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidPitchValue: return "cudaErrorInvalidPitchValue";
    case cudaErrorInvalidMemcpyDirection: return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorIllegalState: return "cudaErrorIllegalState";
    default: return "cudaErrorUnknown";
    }
}

const char* cudaGetErrorString(cudaError_t error) {
    static thread_local std::string text;
    const std::scoped_lock lock(the().guard);
    text = error == cudaErrorLaunchFailure      ? "unspecified launch failure: " + the().why
           : error == cudaErrorMemoryAllocation ? "out of memory"
           : error == cudaErrorInvalidDevice    ? "invalid device ordinal"
           : error == cudaErrorInvalidValue     ? "invalid argument"
                                                : cudaGetErrorName(error);
    return text.c_str();
}

// ---- devices

cudaError_t cudaGetDeviceCount(int* count) {
    return api([&] { *count = 1; });
}
cudaError_t cudaGetDevice(int* device) {
    return api([&] { *device = 0; });
}
cudaError_t cudaSetDevice(int device) {
    return api([&] { require_device(device); });
}
cudaError_t cudaDeviceSynchronize() {
    return api([] {
        if (!end_captures()) { refuse(cudaErrorStreamCaptureUnsupported); }
        run_all();
    });
}
cudaError_t cudaDriverGetVersion(int* version) {
    return api([&] { *version = CUDART_VERSION; });
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    return api([&] { *version = CUDART_VERSION; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return api([&] {
        require_device(device);
        *properties = {};
        std::snprintf(properties->name, sizeof properties->name, "emulated device");
        properties->totalGlobalMem = memory_bytes;
        properties->sharedMemPerBlock = 48 * 1024;
        properties->sharedMemPerBlockOptin = shared_bytes_limit;
        properties->sharedMemPerMultiprocessor = 228 * 1024;
        properties->regsPerBlock = 65536;
        properties->warpSize = warp_size;
        properties->maxThreadsPerBlock = 1024;
        properties->maxThreadsPerMultiProcessor = 2048;
        properties->major = 9;
        properties->minor = 0;
        properties->multiProcessorCount = multiprocessors;
        properties->l2CacheSize = 50 << 20;
        properties->memoryBusWidth = 5120;
    });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    return api([&] {
        require_device(device);
        switch (attribute) {
        case cudaDevAttrMultiProcessorCount: *value = multiprocessors; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_bytes_limit; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 * 1024; break;
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
        case cudaDevAttrWarpSize: *value = warp_size; break;
        case cudaDevAttrL2CacheSize: *value = 50 << 20; break;
        default: refuse(cudaErrorNotSupported);
        }
    });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return api([&] {
        *least = 0;
        *greatest = -5;
    });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    return api([&] {
        require_device(device);
        require_device(peer);
        *can = 0;
    });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    return api([&] {
        require_device(peer);
        refuse(cudaErrorPeerAccessUnsupported);
    });
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute, int value) {
    return api([&] {
        if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value > static_cast<int>(shared_bytes_limit)) {
            refuse(cudaErrorInvalidValue);
        }
    });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads, std::size_t,
                                                                   unsigned) {
    return api([&] { *blocks = threads <= 0 ? 0 : 2048 / threads; });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, std::size_t) {
    return api([&] { *blocks = threads <= 0 ? 0 : 2048 / threads; });
}

// ---- memory

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    return api([&] { *memory = allocate(bytes, true); });
}
cudaError_t cudaFree(void* memory) {
    return api([&] { release(memory, true); });
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
    return api([&] { *memory = allocate(bytes, false); });
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
    return api([&] { *memory = allocate(bytes, false); });
}
cudaError_t cudaFreeHost(void* memory) {
    return api([&] { release(memory, false); });
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    return api([&] {
        *total = memory_bytes;
        *free = memory_bytes - the().device_bytes;
    });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
    return api([&] {
        const allocation* found = allocation_of(address, 1);
        *attributes = {};
        attributes->type = found == nullptr ? cudaMemoryTypeUnregistered
                           : found->device  ? cudaMemoryTypeDevice
                                            : cudaMemoryTypeHost;
        auto* plain = const_cast<void*>(address);
        attributes->devicePointer = found == nullptr ? nullptr : plain;
        attributes->hostPointer = found == nullptr || found->device ? nullptr : plain;
    });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return api([&] { copy(to, bytes, from, bytes, bytes, 1, kind, stream); });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return api([&] {
        require_no_capture();
        copy(to, bytes, from, bytes, bytes, 1, kind, nullptr);
        // From pageable memory the call returns when the bytes are staged, from device to device at once; for a stream
        // that is not ordered with the default one they have not arrived then.
        const bool staged = allocation_of(from, bytes) == nullptr && is_device(to, bytes);
        const bool on_device = is_device(from, bytes) && is_device(to, bytes);
        if (!staged && !on_device) { await(the().default_stream, the().default_stream.issued); }
    });
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t bytes, std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
    return api([&] { copy(to, to_pitch, from, from_pitch, bytes, rows, kind, stream); });
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream) {
    return api([&] {
        require_device(to_device);
        require_device(from_device);
        copy(to, bytes, from, bytes, bytes, 1, cudaMemcpyDeviceToDevice, stream);
    });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    return api([&] { set(to, value, bytes, stream); });
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
    return api([&] {
        require_no_capture();
        set(to, value, bytes, nullptr); // of device memory: the call does not wait for it
        if (!is_device(to, bytes)) { await(the().default_stream, the().default_stream.issued); }
    });
}

// ---- streams

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
    return api([&] {
        // a blocking stream would be ordered with the default stream, which nothing here does
        if (flags != cudaStreamNonBlocking) { refuse(cudaErrorNotSupported); }
        auto made = std::make_unique<CUstream_st>();
        static std::uint64_t streams = 0;
        made->serial = ++streams;
        made->priority = priority;
        the().streams.insert(made.get());
        *stream = made.release();
    });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
    return api([&] { *priority = stream_of(stream).priority; });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return api([&] {
        CUstream_st& gone = stream_of(stream);
        require_not_captured(gone);
        // CUDA lets the work end on its own; here nobody would run it later
        deferring([&] { run_until(gone, gone.issued); });
        the().streams.erase(stream);
        delete stream;
    });
}
cudaError_t cudaStreamSynchronize(cudaStream_t on) {
    return api([&] {
        CUstream_st& stream = stream_of(on);
        require_not_captured(stream);
        await(stream, stream.issued);
    });
}
cudaError_t cudaStreamQuery(cudaStream_t on) {
    return api([&] {
        CUstream_st& stream = stream_of(on);
        require_not_captured(stream);
        if (stream.operations.empty()) { return; }
        run_until(stream, stream.completed + 1); // so that who asks again and again gets on
        if (!stream.operations.empty()) { refuse(cudaErrorNotReady); }
    });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t on, cudaEvent_t event, unsigned) {
    return api([&] {
        CUstream_st& stream = stream_of(on);
        const CUevent_st& waited = event_of(event);
        if (!waited.recorded) { return; }
        const mark& where = waited.where;
        if (where.in != nullptr) {
            if (stream.capturing == nullptr) {
                stream.capturing = where.in;
                stream.capturing->streams.insert(on);
            } else if (stream.capturing != where.in) {
                refuse(cudaErrorStreamCaptureIsolation);
            }
            for (const std::size_t n : where.nodes) { stream.last.push_back(n); }
            return;
        }
        if (stream.capturing != nullptr) {
            stream.capturing->broken = cudaErrorStreamCaptureInvalidated;
            refuse(cudaErrorStreamCaptureIsolation);
        }
        enqueue(stream, [where] { run_mark(where); });
    });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t on, cudaHostFn_t function, void* data) {
    return api([&] { enqueue(stream_of(on), [=] { function(data); }); });
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    return api([&] { *event = make_event(flags); });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return api([&] {
        static_cast<void>(event_of(event));
        the().events.erase(event);
        delete event;
    });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t on) {
    return api([&] {
        CUstream_st& stream = stream_of(on);
        CUevent_st& recorded = event_of(event);
        recorded.recorded = true;
        recorded.when = std::make_shared<stamp>();
        if (stream.capturing != nullptr) {
            recorded.where = {on, stream.serial, 0, stream.capturing, stream.last};
            return;
        }
        enqueue(stream, [when = recorded.when] { *when = {std::chrono::steady_clock::now(), true}; });
        recorded.where = {on == cudaStreamLegacy ? nullptr : on, stream.serial, stream.issued, nullptr, {}};
    });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return api([&] {
        const CUevent_st& waited = event_of(event);
        if (!waited.recorded) { return; }
        if (waited.where.in != nullptr) { refuse(cudaErrorStreamCaptureUnsupported); }
        if (!waited.when->set) { ++the().waits; }
        run_mark(mark(waited.where));
    });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return api([&] {
        const CUevent_st& asked = event_of(event);
        if (!asked.recorded || asked.when->set) { return; }
        if (asked.where.in != nullptr) { refuse(cudaErrorStreamCaptureUnsupported); }
        CUstream_st& stream = stream_of(asked.where.stream);
        run_until(stream, stream.completed + 1);
        if (!asked.when->set) { refuse(cudaErrorNotReady); }
    });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    return api([&] {
        const CUevent_st& first = event_of(from);
        const CUevent_st& second = event_of(to);
        if (!first.timing || !second.timing || !first.recorded || !second.recorded) {
            refuse(cudaErrorInvalidResourceHandle);
        }
        if (!first.when->set || !second.when->set) { refuse(cudaErrorNotReady); }
        *milliseconds = std::chrono::duration<float, std::milli>(second.when->at - first.when->at).count();
    });
}

// ---- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t on, cudaStreamCaptureMode mode) {
    return api([&] {
        CUstream_st& stream = stream_of(on);
        if (&stream == &the().default_stream) { refuse(cudaErrorStreamCaptureUnsupported); }
        if (stream.capturing != nullptr) { refuse(cudaErrorIllegalState); }
        stream.capturing = std::make_shared<capture>();
        static unsigned long long captures = 0;
        stream.capturing->origin = on;
        stream.capturing->id = ++captures;
        stream.capturing->mode = mode;
        stream.capturing->thread = this_thread();
        stream.capturing->streams.insert(on);
        stream.last.clear();
        the().captures.push_back(stream.capturing);
    });
}
cudaError_t cudaStreamEndCapture(cudaStream_t on, cudaGraph_t* graph) {
    return api([&] {
        CUstream_st& stream = stream_of(on);
        if (stream.capturing == nullptr || stream.capturing->origin != on) { refuse(cudaErrorIllegalState); }
        const std::shared_ptr<capture> done = stream.capturing;
        const std::vector<std::size_t> last = std::move(stream.last);
        bool all = true;
        for (cudaStream_t other : done->streams) {
            if (other != on && the().streams.contains(other)) {
                all = all && joined(*done, other->last, last);
                other->capturing = nullptr;
                other->last.clear();
            }
        }
        stream.capturing = nullptr;
        stream.last.clear();
        std::erase(the().captures, done);
        *graph = nullptr;
        if (done->broken != cudaSuccess) { refuse(done->broken); }
        if (!all) { refuse(cudaErrorStreamCaptureUnjoined); }
        *graph = new CUgraph_st{done->nodes, last};
    });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t on, cudaStreamCaptureStatus* status) {
    return api([&] {
        const CUstream_st& stream = stream_of(on);
        *status = stream.capturing == nullptr               ? cudaStreamCaptureStatusNone
                  : stream.capturing->broken != cudaSuccess ? cudaStreamCaptureStatusInvalidated
                                                            : cudaStreamCaptureStatusActive;
    });
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t on, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* count) {
    const cudaError_t asked = cudaStreamIsCapturing(on, status);
    if (asked != cudaSuccess) { return asked; }
    return api([&] {
        if (graph != nullptr || dependencies != nullptr || edges != nullptr || count != nullptr) {
            refuse(cudaErrorNotSupported);
        }
        const CUstream_st& stream = stream_of(on);
        if (id != nullptr && stream.capturing != nullptr) { *id = stream.capturing->id; }
    });
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
    return api([&] {
        if (nodes != nullptr) { refuse(cudaErrorNotSupported); }
        *count = graph->nodes.size();
    });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    return api([&] { *exec = new CUgraphExec_st{std::make_shared<const CUgraph_st>(*graph)}; });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t on) {
    return api([&] { static_cast<void>(stream_of(on)); });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t on) {
    return api([&] { enqueue(stream_of(on), [graph = exec->graph] { run_graph(*graph); }); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return api([&] { delete graph; });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return api([&] { delete exec; });
}

} // extern "C"
