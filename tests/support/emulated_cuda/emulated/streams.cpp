#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>

#include <emulated/machine.hpp>
#include <emulated/runtime.hpp>

namespace emulated_cuda {
namespace {

std::atomic<bool> counts_only{};
std::atomic<std::int64_t> taken_ns{};

[[nodiscard]] std::chrono::steady_clock::time_point device_time() {
    const auto host = counts_only ? std::chrono::steady_clock::time_point{} : std::chrono::steady_clock::now();
    return host + std::chrono::nanoseconds{taken_ns.load()};
}

cudaEvent_t make_event(unsigned flags) {
    auto event = std::make_unique<CUevent_st>();
    event->timing = (flags & cudaEventDisableTiming) == 0;
    the().events.insert(event.get());
    return event.release();
}

/// Runs one operation if it is ready.
void run_next(CUstream_st& stream) {
    try {
        run_until(stream, stream.completed + 1);
    } catch (const not_ready&) {}
}

} // namespace

void count_time_only(bool only) { counts_only = only; }
void take_time(double seconds) { taken_ns += std::llround(1e9 * seconds); }

} // namespace emulated_cuda

using namespace emulated_cuda;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
    return api([&] {
        // a blocking stream would be ordered with the default stream, which nothing here does
        if (flags != cudaStreamNonBlocking) { refuse(cudaErrorNotSupported); }
        auto made = std::make_unique<CUstream_st>();
        static std::uint64_t streams = 0;
        made->serial = ++streams;
        made->priority = priority;
        made->maker = this_thread();
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
        // CUDA lets the work finish by itself; here nobody would run it later
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
        run_next(stream); // lets a polling caller make progress
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
                stream.capturing->broken = where.in->broken = cudaErrorStreamCaptureInvalidated;
                refuse(cudaErrorStreamCaptureMerge);
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
        enqueue(stream, [when = recorded.when] { *when = {device_time(), true}; });
        recorded.where = {on == cudaStreamLegacy ? nullptr : on, stream.serial, stream.issued, nullptr, {}};
    });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return api([&] {
        const CUevent_st& waited = event_of(event);
        if (!waited.recorded) { return; }
        require_not_captured(waited);
        if (!waited.when->set) { ++the().waits; }
        run_mark(mark(waited.where));
    });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return api([&] {
        const CUevent_st& asked = event_of(event);
        if (!asked.recorded) { return; }
        require_not_captured(asked);
        if (!asked.when->set) { run_next(stream_of(asked.where.stream)); }
        if (!asked.when->set || !tells_what_is_done()) { refuse(cudaErrorNotReady); }
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

} // extern "C"
