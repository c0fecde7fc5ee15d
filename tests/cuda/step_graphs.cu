#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/cuda/cudnn/engines.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/scratch.cuh>
#include <pulse/cuda/step_graphs.cuh>
#include <pulse/cuda/stream.cuh>
#include <pulse/cuda/stream_clock.cuh>
#include <pulse/runtime/trace.hpp>

#include <support/stderr_text.hpp>

#include <device_array.hpp>

namespace cuda = pulse::cuda;
using pulse::test::device_array;

namespace {

template <class T>
__global__ void double_and_add_kernel(T* y, T amount) {
    *y = 2 * *y + amount;
}

/// The part of a backend that step_graphs and stream_clock need.
struct machine {
    cuda::stream own{};
    std::int64_t scratch{100};

    [[nodiscard]] cudaStream_t stream() const { return own.get(); }
    [[nodiscard]] std::int64_t scratch_bytes() const { return scratch; }
};

/// A program of two instructions; their kind does not matter here.
[[nodiscard]] pulse::program two_instructions() {
    pulse::program made{};
    made.instructions = {pulse::op::forward{pulse::stage_id{0}, pulse::microbatch_id{0}},
                         pulse::op::forward{pulse::stage_id{0}, pulse::microbatch_id{1}}};
    return made;
}

/// While one lives, a stream is in an unrelated capture.
struct another_capture {
    explicit another_capture(const cuda::stream& on) : on_{on.get()} {
        cuda::check(cudaStreamBeginCapture(on_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    }
    another_capture(const another_capture&) = delete;
    another_capture& operator=(const another_capture&) = delete;
    ~another_capture() {
        cudaGraph_t graph = nullptr;
        static_cast<void>(cudaStreamEndCapture(on_, &graph)); // it may have ended already
        if (graph != nullptr) { static_cast<void>(cudaGraphDestroy(graph)); }
        static_cast<void>(cudaGetLastError());
    }

private:
    cudaStream_t on_;
};

struct bench {
    machine math{};
    cuda::step_graphs graphs{math, two_instructions()};
    int calls{};

    /// Instruction i: y = 2 y + amount. A replay adds the amount at capture time.
    void run(std::size_t i, int* y, int amount) {
        const auto addresses = [&](auto&& visit) { visit(static_cast<const void*>(y)); };
        graphs.run(i, addresses, [&] {
            ++calls;
            cuda::launch(double_and_add_kernel<int>, 1, 1, 0, math.stream(), y, amount);
        });
    }
};

} // namespace

TEST_CASE("an instruction is started, captured, and from then on replayed") {
    bench b;
    const device_array<int> x(std::vector<int>{1});
    const device_array<int> y(std::vector<int>{0});
    int expected_x = 1;
    int expected_y = 0;
    for (int step = 0; step != 5; ++step) {
        b.run(0, x.data(), 1);
        b.run(1, y.data(), 3);
        expected_x = 2 * expected_x + 1;
        expected_y = 2 * expected_y + 3;
        CHECK(b.calls == 2 * (step < 2 ? step + 1 : 2)); // nothing is called after the second step
    }
    CHECK(x.download(b.math.stream())[0] == expected_x);
    CHECK(y.download(b.math.stream())[0] == expected_y);
    CHECK(b.graphs.captured() == 2);
    CHECK(b.graphs.replayed() == 6);
}

TEST_CASE("an instruction whose tensors moved is started anew, and captured when they stay") {
    bench b;
    const device_array<int> x(std::vector<int>{1});
    const device_array<int> y(std::vector<int>{1});
    b.run(0, x.data(), 1); // 3
    b.run(0, x.data(), 1); // 7, captured
    b.run(0, y.data(), 1); // 3
    b.run(0, x.data(), 1); // 15
    b.run(0, x.data(), 1); // 31, captured again
    b.run(0, x.data(), 1); // 63
    CHECK(x.download(b.math.stream())[0] == 63);
    CHECK(y.download(b.math.stream())[0] == 3);
    CHECK(b.calls == 5);
    CHECK(b.graphs.captured() == 2);
    CHECK(b.graphs.replayed() == 1);
}

TEST_CASE("a scratch that grew ends the replays of what was captured before") {
    bench b;
    const device_array<int> x(std::vector<int>{0});
    for (int step = 0; step != 3; ++step) { b.run(0, x.data(), 1); }
    CHECK(b.graphs.replayed() == 1);
    b.math.scratch = 200;
    b.run(0, x.data(), 1);
    CHECK(b.graphs.replayed() == 1);
    b.run(0, x.data(), 1);
    b.run(0, x.data(), 1);
    CHECK(b.graphs.captured() == 2);
    CHECK(b.graphs.replayed() == 2);
    CHECK(x.download(b.math.stream())[0] == 63);
}

TEST_CASE("an error while work is captured leaves the stream usable") {
    bench b;
    const device_array<int> x(std::vector<int>{0});
    b.run(0, x.data(), 1);
    const cuda::stream side;
    for (const bool forked : {false, true}) {
        const auto fails = [&] {
            b.graphs.run(
                0, [&](auto&& visit) { visit(static_cast<const void*>(x.data())); },
                [&] {
                    if (forked) { side.wait(b.math.own); }
                    cuda::launch(double_and_add_kernel<int>, 1, 1, 0, b.math.stream(), x.data(), 5);
                    throw pulse::error{"no more"};
                });
        };
        CHECK_THROWS_WITH_AS(fails(), "no more", pulse::error);
    }
    b.run(0, x.data(), 1);
    b.run(0, x.data(), 1);
    CHECK(x.download(b.math.stream())[0] == 7); // work captured with the error never ran
}

TEST_CASE("work that cannot be captured yet is started as it is and captured the next time") {
    bench b;
    const device_array<int> x(std::vector<int>{0});
    bool known = true;
    const auto run = [&] {
        b.graphs.run(
            0, [&](auto&& visit) { visit(static_cast<const void*>(x.data())); },
            [&] {
                cuda::launch(double_and_add_kernel<int>, 1, 1, 0, b.math.stream(), x.data(), 1);
                if (!known) { cuda::require_not_captured(b.math.stream(), "an engine has to be chosen"); }
                known = true;
                cuda::launch(double_and_add_kernel<int>, 1, 1, 0, b.math.stream(), x.data(), 0);
            });
    };
    run(); // 2
    known = false;
    run(); // 10, not captured
    CHECK(b.graphs.captured() == 0);
    CHECK(x.download(b.math.stream())[0] == 10);
    run(); // 42, captured
    run(); // 170
    CHECK(b.graphs.captured() == 1);
    CHECK(b.graphs.replayed() == 1);
    CHECK(x.download(b.math.stream())[0] == 170);
}

TEST_CASE("work whose capture a library ends is started as it is from then on, and other work is captured") {
    for (const bool throws : {false, true}) {
        CAPTURE(throws);
        bench b;
        const device_array<int> x(std::vector<int>{1});
        const device_array<int> y(std::vector<int>{1});
        int calls = 0;
        const auto run = [&] {
            b.graphs.run(
                0, [&](auto&& visit) { visit(static_cast<const void*>(x.data())); },
                [&] {
                    ++calls;
                    if (cuda::capture_of(b.math.stream()) != 0) { // a captured stream cannot wait
                        void* memory = nullptr;
                        CHECK(cudaMalloc(&memory, 64) != cudaSuccess);
                        static_cast<void>(cudaGetLastError());
                        if (throws) { throw pulse::error{"the library has failed"}; }
                    }
                    cuda::launch(double_and_add_kernel<int>, 1, 1, 0, b.math.stream(), x.data(), 1);
                });
        };
        for (int step = 0; step != 4; ++step) {
            run();
            b.run(1, y.data(), 1);
        }
        CHECK(calls == 5);
        CHECK(x.download(b.math.stream())[0] == 31);
        CHECK(y.download(b.math.stream())[0] == 31);
        CHECK(b.graphs.captured() == 1);
        CHECK(b.graphs.given_up() == 1);
    }
}

TEST_CASE("work whose capture CUDA refuses or ends is launched directly from then on, and reported once") {
    const cuda::stream side;
    cuda::event of_before;
    of_before.record(side.get());
    const device_array<int> y(std::vector<int>{1});
    struct way {
        const char* says;
        std::function<void(const cuda::stream&)> go;
    };
    const way ways[] = {
        {"cudaErrorStreamCaptureUnsupported", [&](const cuda::stream& on) { on.synchronize(); }},
        {"cudaErrorStreamCaptureInvalidated",
         [&](const cuda::stream& on) {
             static_cast<void>(cudaStreamSynchronize(on.get()));
             static_cast<void>(cudaGetLastError());
         }},
        {"cudaErrorStreamCaptureUnjoined",
         [&](const cuda::stream& on) {
             side.wait(on);
             cuda::launch(double_and_add_kernel<int>, 1, 1, 0, side.get(), y.data(), 1);
         }},
        {"cudaErrorStreamCaptureIsolation", [&](const cuda::stream& on) { on.wait(of_before); }},
        {"cudaErrorStreamCaptureMerge",
         [&](const cuda::stream& on) {
             const another_capture ends_with_this{side};
             on.wait(side);
         }},
        {"cudaErrorCapturedEvent",
         [&](const cuda::stream& on) {
             cuda::event point;
             point.record(on.get());
             point.synchronize();
         }},
    };
    for (const way& one : ways) {
        CAPTURE(one.says);
        const pulse::test::stderr_text said;
        bench b;
        const device_array<int> x(std::vector<int>{1});
        int calls = 0;
        for (int step = 0; step != 3; ++step) {
            for (const std::size_t i : {0, 1}) {
                b.graphs.run(
                    i, [&](auto&& visit) { visit(static_cast<const void*>(x.data())); },
                    [&] {
                        ++calls;
                        if (cuda::capture_of(b.math.stream()) != 0) { one.go(b.math.own); }
                        cuda::launch(double_and_add_kernel<int>, 1, 1, 0, b.math.stream(), x.data(), 1);
                    });
            }
        }
        CHECK(calls == 8);
        CHECK(x.download(b.math.stream())[0] == 127);
        CHECK(b.graphs.captured() == 0);
        CHECK(b.graphs.given_up() == 2);
        CAPTURE(said.text());
        CHECK(said.count("runs call by call from now on") == 1);
        CHECK(said.count(std::string{one.says} + ",") == 1);
    }
    side.synchronize();
    CHECK(y.download()[0] == 1); // work captured with an open branch never ran
}

TEST_CASE("a library that closes on another thread leaves a capture whole") {
    machine math;
    const device_array<int> x(std::vector<int>{1});
    std::optional<cuda::cudnn::library> dnn{std::in_place};
    std::atomic<bool> closed{false};
    std::jthread closing;
    const auto add = [&] { cuda::launch(double_and_add_kernel<int>, 1, 1, 0, math.stream(), x.data(), 1); };
    const cuda::captured_work work{math.stream(), [&] {
                                       add();
                                       closing = std::jthread{[&] {
                                           dnn.reset();
                                           closed = true;
                                       }};
                                       // enough time to close, unless it waits for the end of the capture
                                       std::this_thread::sleep_for(std::chrono::milliseconds{20});
                                       CHECK(!closed);
                                       add();
                                   }};
    closing.join();
    CHECK(closed);
    work.start(math.stream());
    CHECK(x.download(math.stream())[0] == 7);
}

TEST_CASE("a trace on a stream keeps the times of its points") {
    machine math;
    const device_array<int> x(std::vector<int>{1});
    const std::int64_t making = pulse::trace::now_ns();
    pulse::basic_trace<cuda::stream_clock> seen{math, 2};
    const std::int64_t before = pulse::trace::now_ns();
    for (int i = 0; i != 2; ++i) {
        REQUIRE(seen.on());
        seen.begin(i);
        seen.waited();
        cuda::launch(double_and_add_kernel<int>, 1, 1, 0, math.stream(), x.data(), 1);
        seen.end();
    }
    CHECK(!seen.on());
    const auto events = seen.events();
    const std::int64_t after = pulse::trace::now_ns();
    REQUIRE(events.size() == 2);
    // The clocks are aligned while the trace is created: they differ by at most the time that this took, plus rounding.
    const std::int64_t slack = before - making + 2000; // ns
    for (const auto& e : events) {
        CHECK(e.start_ns >= before - slack);
        CHECK(e.start_ns + e.waited_ns <= e.end_ns);
        CHECK(e.end_ns <= after + slack);
    }
    CHECK(events[0].end_ns <= events[1].start_ns + 1000);
    cuda::stream_clock full{math, 1};
    static_cast<void>(full.now());
    CHECK_THROWS_AS(static_cast<void>(full.now()), pulse::error);
}
