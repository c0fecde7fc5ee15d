#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/core/owner.hpp>
#include <pulse/cuda/capture_guard.cuh>
#include <pulse/cuda/error.cuh>
#include <pulse/cuda/range.cuh>
#include <pulse/cuda/scratch.cuh>
#include <pulse/plan/print.hpp>
#include <pulse/plan/program.hpp>

namespace pulse::cuda {

/// Work could not be captured in a graph: its capture was refused or ended, because a library made a call that a graph
/// cannot contain, left a branch unjoined or waited for outside work, or because another thread waited for the whole
/// device; or the graph could not be instantiated.
struct capture_ended : error {
    using error::error;
};

/// Whether a call failed only because of a capture, while nothing is wrong with the device or the work itself.
[[nodiscard]] constexpr bool is_of_capture(cudaError_t status) noexcept {
    return status >= cudaErrorStreamCaptureUnsupported && status <= cudaErrorStreamCaptureWrongThread;
}

/// The work of a captured stream, to be launched again as one graph.
class captured_work {
public:
    captured_work() = default;
    /// Captures what `work()` enqueues, without running it. Exceptions of `work` pass through and leave the stream as
    /// it was; but if the capture was refused or ended, throws capture_ended instead.
    template <class Work>
    captured_work(cudaStream_t stream, Work&& work) {
        const std::shared_lock nobody_waits_for_the_device{capture_guard()};
        require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        cudaGraph_t graph = nullptr;
        try {
            work();
        } catch (const std::exception& e) {
            const auto* const call = dynamic_cast<const cuda_error*>(&e);
            // asked before ending it: an exception between a fork and its join leaves a branch open, too
            const bool ended_before = status_of(stream) == cudaStreamCaptureStatusInvalidated;
            leave(stream);
            if (ended_before || (call != nullptr && is_of_capture(call->code))) { throw capture_ended{e.what()}; }
            throw;
        } catch (...) {
            leave(stream);
            throw;
        }
        const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
        // a stream that is still captured, as by others, would record what is then started call by call
        if (status_of(stream) != cudaStreamCaptureStatusNone) { check(ended, "cudaStreamEndCapture"); }
        require(ended, "cudaStreamEndCapture");
        const cudaError_t made = cudaGraphInstantiate(handle_.place(), graph, 0);
        static_cast<void>(cudaGraphDestroy(graph));
        if (made != cudaSuccess) {
            static_cast<void>(cudaGetLastError());
            throw capture_ended{std::string{"cudaGraphInstantiate: "} + cudaGetErrorString(made)};
        }
    }

    [[nodiscard]] explicit operator bool() const noexcept { return handle_.get() != nullptr; }
    void start(cudaStream_t stream) const { check(cudaGraphLaunch(handle_.get(), stream), "cudaGraphLaunch"); }

private:
    /// Throws capture_ended if `call` failed because of a capture, cuda_error if it failed otherwise.
    static void require(cudaError_t status, const char* call) {
        if (!is_of_capture(status)) { return check(status, call); }
        static_cast<void>(cudaGetLastError());
        throw capture_ended{std::string{call} + ": " + cudaGetErrorName(status) + ", " + cudaGetErrorString(status)};
    }
    [[nodiscard]] static cudaStreamCaptureStatus status_of(cudaStream_t stream) noexcept {
        cudaStreamCaptureStatus status{};
        if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) { return status; }
        static_cast<void>(cudaGetLastError());
        return cudaStreamCaptureStatusNone;
    }
    /// Ends a capture and discards its graph, whether or not it succeeded.
    static void leave(cudaStream_t stream) noexcept {
        cudaGraph_t graph = nullptr;
        static_cast<void>(cudaStreamEndCapture(stream, &graph));
        static_cast<void>(cudaGetLastError());
        if (graph != nullptr) { static_cast<void>(cudaGraphDestroy(graph)); }
    }

    owner<cudaGraphExec_t, cudaGraphExecDestroy> handle_{};
};

/// Runs the computations of a rank's program. Each instruction runs uncaptured the first time, is captured in a CUDA
/// graph the second time and replayed from then on, as long as its tensors and the backend's scratch stay in place; if
/// one has moved, it runs uncaptured and is captured again the next time.
///
/// The first run sizes the scratch and chooses algorithms, which cannot be done while a stream is captured. Work that
/// still throws not_capturable (its backend was used for something else in between) runs uncaptured and is captured the
/// next time. An instruction whose capture is refused or ended, for any reason, runs uncaptured from then on; the first
/// of them is named on stderr, with the reason. Every instruction is a range on a profiler's timeline, named by pass,
/// stage and microbatch.
class step_graphs {
public:
    /// For the instructions of a program; `math` has stream() and scratch_bytes().
    template <class B>
    step_graphs(B& math, const program& of_rank) : step_graphs{math, names_of(of_rank)} {}
    /// For one piece of work per name.
    template <class B>
    step_graphs(B& math, std::vector<std::string> names) :
        stream_{math.stream()}, math_{&math}, scratch_bytes_{[](const void* of) -> std::int64_t {
            return static_cast<const B*>(of)->scratch_bytes();
        }} {
        entries_.resize(names.size());
        for (std::size_t i = 0; i != entries_.size(); ++i) { entries_[i].name = std::move(names[i]); }
    }

    /// `addresses(visit)` calls visit(pointer) for every tensor that `work` is given and that may move between steps.
    template <class Addresses, class Work>
    void run(std::size_t instruction, Addresses&& addresses, Work&& work) {
        entry& mine = entries_[instruction];
        const range named{mine.name.c_str()};
        now_.clear();
        addresses([this](const void* address) { now_.push_back(address); });
        const bool stayed = mine.seen && mine.addresses == now_;
        if (stayed && mine.captured && mine.scratch_bytes == scratch_bytes_(math_)) {
            mine.captured.start(stream_);
            ++replayed_;
            return;
        }
        if (stayed && !mine.given_up && !mine.captured && capture(mine, work)) {
            mine.captured.start(stream_);
            return;
        }
        mine.captured = captured_work{};
        mine.addresses = now_;
        mine.seen = true;
        work();
    }

    /// Number of captures of instructions, and of replays of a capture.
    [[nodiscard]] std::int64_t captured() const noexcept { return captured_; }
    [[nodiscard]] std::int64_t replayed() const noexcept { return replayed_; }
    /// Number of instructions that run uncaptured because their capture was refused or ended.
    [[nodiscard]] std::int64_t given_up() const noexcept { return given_up_; }

private:
    [[nodiscard]] static std::vector<std::string> names_of(const program& of_rank) {
        std::vector<std::string> names;
        names.reserve(of_rank.instructions.size());
        for (const instruction& what : of_rank.instructions) { names.push_back(to_text(what)); }
        return names;
    }

    struct entry;

    /// Returns whether the work could be captured.
    template <class Work>
    bool capture(entry& mine, Work& work) {
        try {
            mine.captured = captured_work{stream_, work};
        } catch (const not_capturable&) { return false; } catch (const capture_ended& e) {
            mine.given_up = true;
            if (given_up_++ == 0) {
                std::fprintf(stderr,
                             "pulse: %s runs call by call from now on, as it cannot be captured in a CUDA graph: %s. "
                             "Others may follow.\n",
                             mine.name.c_str(), e.what());
            }
            return false;
        }
        mine.scratch_bytes = scratch_bytes_(math_);
        ++captured_;
        return true;
    }

    struct entry {
        std::string name{};
        std::vector<const void*> addresses{};
        captured_work captured{};
        std::int64_t scratch_bytes{};
        bool seen{};
        bool given_up{};
    };

    cudaStream_t stream_;
    const void* math_;
    std::int64_t (*scratch_bytes_)(const void*);
    std::vector<entry> entries_{};
    std::vector<const void*> now_{};
    std::int64_t captured_{};
    std::int64_t replayed_{};
    std::int64_t given_up_{};
};

} // namespace pulse::cuda
