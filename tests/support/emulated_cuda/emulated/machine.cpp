#include <emulated/machine.hpp>

#include <algorithm>
#include <stdexcept>

#include <emulated/runtime.hpp>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace emulated_cuda {
namespace {

/// The host may access device memory only while the device runs.
void open_memory([[maybe_unused]] bool open) {
#if defined(__SANITIZE_ADDRESS__)
    for (const auto& [address, block] : the().memory) {
        if (!block.device || block.untouched) { continue; }
        auto* start = reinterpret_cast<void*>(address);
        open ? ASAN_UNPOISON_MEMORY_REGION(start, block.bytes) : ASAN_POISON_MEMORY_REGION(start, block.bytes);
    }
#endif
}

void run_one(CUstream_st& stream) {
    operation next = std::move(stream.operations.front());
    stream.operations.pop_front();
    stream.running = true;
    bool ready = true;
    struct count {
        CUstream_st& stream;
        const bool& ready;
        ~count() {
            stream.running = false;
            if (ready) { ++stream.completed; }
        }
    } const counted{stream, ready};
    try {
        next();
    } catch (const not_ready&) {
        ready = false;
        stream.operations.push_front(std::move(next));
        throw;
    }
}

} // namespace

device& the() {
    static device instance;
    return instance;
}

cudaError_t& last_error() {
    static thread_local cudaError_t last = cudaSuccess;
    return last;
}

bool& tells_what_is_done() {
    static thread_local bool tells = true;
    return tells;
}

std::size_t this_thread() {
    static std::size_t count = 0;
    static thread_local const std::size_t mine = ++count; // under the lock
    return mine;
}

execution::execution() {
    if (the().depth++ == 0) { open_memory(true); }
}
execution::~execution() {
    if (--the().depth == 0) { open_memory(false); }
}

CUstream_st& stream_of(cudaStream_t stream) {
    if (stream == nullptr || stream == cudaStreamLegacy) { return the().default_stream; }
    if (!the().streams.contains(stream)) { refuse(cudaErrorInvalidResourceHandle); }
    return *stream;
}

CUevent_st& event_of(cudaEvent_t event) {
    if (!the().events.contains(event)) { refuse(cudaErrorInvalidResourceHandle); }
    return *event;
}

void run_until(CUstream_st& stream, std::uint64_t position) {
    const execution running;
    while (stream.completed < position) {
        if (stream.operations.empty() || stream.running) { refuse(cudaErrorUnknown); } // the operation waits for itself
        run_one(stream);
    }
}

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
    for (cudaStream_t stream : the().streams) {
        try {
            run_until(*stream, stream->issued);
        } catch (const not_ready&) {} // it waits for another rank, which would have its own device
    }
}

void drain() {
    for (cudaStream_t stream : the().streams) {
        if (stream->maker == this_thread()) { run_until(*stream, stream->last_message); }
    }
}

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

void require_not_captured(const CUevent_st& event) {
    if (event.where.in != nullptr) {
        event.where.in->broken = cudaErrorStreamCaptureInvalidated;
        refuse(cudaErrorCapturedEvent);
    }
}

void enqueue(CUstream_st& stream, operation run) {
    if (stream.capturing != nullptr) {
        if (stream.capturing->broken != cudaSuccess) { refuse(cudaErrorStreamCaptureInvalidated); }
        stream.capturing->nodes.push_back({std::move(run), stream.last});
        stream.last = {stream.capturing->nodes.size() - 1};
        return;
    }
    stream.operations.push_back(std::move(run));
    ++stream.issued;
}

void enqueue(CUstream_st& stream, const work& what, operation run) {
    enqueue(stream, the().counted.note ? the().counted.note(what) : std::move(run));
}

void require_device(int device) {
    if (device < 0 || device >= the().counted.devices) { refuse(cudaErrorInvalidDevice); }
}

cudaError_t enqueue_kernel(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                           std::function<void()> body, const work& what) {
    return api([&] {
        CUstream_st& on = stream_of(stream);
        const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
        if (threads == 0 || threads > 1024 || block.z > 64 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
            grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
            refuse(cudaErrorInvalidConfiguration);
        }
        const auto allowed = the().allowed_shared_bytes.find(what.kernel);
        const std::size_t most = allowed == the().allowed_shared_bytes.end() ? plain_shared_bytes : allowed->second;
        if (shared_bytes > std::min(std::max(most, plain_shared_bytes), the().shared_bytes_limit)) {
            refuse(cudaErrorInvalidValue);
        }
        const std::pair<std::size_t, const void*> loaded{this_thread(), what.kernel};
        if (what.kernel != nullptr && !the().kernels_loaded.contains(loaded)) {
            drain();
            the().kernels_loaded.insert(loaded);
        }
        enqueue(on, what, [=, run = std::move(body)] {
            ++the().kernels;
            run_grid(grid, block, shared_bytes, run);
        });
    });
}

void count_on(counted_device counted) {
    const std::scoped_lock lock(the().guard);
    const auto has_work = [](const CUstream_st& stream) { return !stream.operations.empty(); };
    if (!the().memory.empty() || has_work(the().default_stream) ||
        std::ranges::any_of(the().streams, [&](cudaStream_t stream) { return has_work(*stream); })) {
        throw std::logic_error{"count_on: memory is allocated, or a stream has work"};
    }
    the().counted = std::move(counted);
    the().peers.clear();
}
counting::~counting() {
    const std::scoped_lock lock(the().guard);
    the().counted = {};
}

void set_shared_bytes_limit(std::size_t bytes) {
    const std::scoped_lock lock(the().guard);
    the().shared_bytes_limit = bytes;
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

cudaError_t drain_device() {
    return api([] { drain(); });
}

void answer_queries(bool answers) { tells_what_is_done() = answers; }

bool end_captures(cudaError_t how) {
    const std::scoped_lock lock(the().guard);
    for (const auto& open : the().captures) { open->broken = how; }
    return the().captures.empty();
}

std::size_t pending(cudaStream_t stream) {
    const std::scoped_lock lock(the().guard);
    return stream_of(stream).operations.size();
}

} // namespace emulated_cuda
