#include <doctest/doctest.h>

#include <source_location>
#include <string>
#include <vector>

#include <emulated/runtime.hpp>

#include <pulse/core/error.hpp>
#include <pulse/cuda/error.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/scratch.cuh>
#include <pulse/cuda/step_graphs.cuh>
#include <pulse/cuda/stream.cuh>

#include <support/stderr_text.hpp>

#include <device_array.hpp>

namespace cuda = pulse::cuda;
using pulse::test::device_array;

namespace {

template <class T>
__global__ void add_once_kernel(const T* x, T amount, T* y) {
    *y = *x + amount;
}

struct captured {
    cudaGraph_t graph{};
    cudaGraphExec_t exec{};
    captured() = default;
    captured(const captured&) = delete;
    captured& operator=(const captured&) = delete;
    ~captured() {
        if (exec != nullptr) { static_cast<void>(cudaGraphExecDestroy(exec)); }
        if (graph != nullptr) { static_cast<void>(cudaGraphDestroy(graph)); }
    }
};

/// x += 1 on one stream; y = x + 10 on another, which may join and may wait; then z = y + 100.
void capture_fork(const cuda::stream& main, const cuda::stream& side, bool joins, int* x, int* y, int* z,
                  captured& into) {
    cuda::check(cudaStreamBeginCapture(main.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cuda::launch(add_once_kernel<int>, 1, 1, 0, main.get(), x, 1, x);
    side.wait(main);
    cuda::launch(add_once_kernel<int>, 1, 1, 0, side.get(), x, 10, y);
    if (joins) { main.wait(side); }
    cuda::launch(add_once_kernel<int>, 1, 1, 0, main.get(), y, 100, z);
    cuda::check(cudaStreamEndCapture(main.get(), &into.graph), "cudaStreamEndCapture");
}

} // namespace

TEST_CASE("a captured graph is replayed as often as it is launched") {
    const device_array<int> x(std::vector<int>{0});
    const device_array<int> y(1);
    const device_array<int> z(1);
    const cuda::stream main;
    const cuda::stream side;
    captured made;
    const std::int64_t before = emulated_cuda::executed_kernels();
    capture_fork(main, side, true, x.data(), y.data(), z.data(), made);
    main.synchronize();
    CHECK(emulated_cuda::executed_kernels() == before); // capturing runs nothing
    std::size_t nodes = 0;
    cuda::check(cudaGraphGetNodes(made.graph, nullptr, &nodes), "cudaGraphGetNodes");
    CHECK(nodes == 3);
    cuda::check(cudaGraphInstantiate(&made.exec, made.graph, 0), "cudaGraphInstantiate");
    for (int round = 1; round <= 3; ++round) {
        cuda::check(cudaGraphLaunch(made.exec, main.get()), "cudaGraphLaunch");
        CHECK(z.download(main.get())[0] == 110 + round);
    }
    CHECK(emulated_cuda::executed_kernels() == before + 9);
    // the streams are usable again
    cuda::launch(add_once_kernel<int>, 1, 1, 0, side.get(), x.data(), 1, x.data());
    CHECK(x.download(side.get())[0] == 4);
}

TEST_CASE("capturing refuses what CUDA refuses") {
    const device_array<int> x(std::vector<int>{0});
    const device_array<int> y(std::vector<int>{0});
    const device_array<int> z(1);
    const cuda::stream main;
    const cuda::stream side;
    SUBCASE("a branch that does not come back") {
        captured made;
        CHECK_THROWS_WITH_AS(capture_fork(main, side, false, x.data(), y.data(), z.data(), made),
                             doctest::Contains("cudaErrorStreamCaptureUnjoined"), cuda::cuda_error);
    }
    SUBCASE("waiting on the host") {
        captured made;
        cuda::check(cudaStreamBeginCapture(main.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        CHECK_THROWS_WITH_AS(main.synchronize(), doctest::Contains("cudaErrorStreamCaptureUnsupported"),
                             cuda::cuda_error);
        CHECK(cudaStreamEndCapture(main.get(), &made.graph) == cudaErrorStreamCaptureInvalidated);
    }
    SUBCASE("allocating") {
        captured made;
        cuda::check(cudaStreamBeginCapture(main.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        CHECK_THROWS_WITH_AS(cuda::device_memory<int>(4), doctest::Contains("cudaErrorStreamCaptureUnsupported"),
                             cuda::cuda_error);
        CHECK(cudaStreamEndCapture(main.get(), &made.graph) == cudaErrorStreamCaptureInvalidated);
    }
    SUBCASE("waiting for an event of before") {
        captured made;
        cuda::event point;
        point.record(side.get());
        cuda::check(cudaStreamBeginCapture(main.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        CHECK_THROWS_WITH_AS(main.wait(point), doctest::Contains("cudaErrorStreamCaptureIsolation"), cuda::cuda_error);
        CHECK(cudaStreamEndCapture(main.get(), &made.graph) == cudaErrorStreamCaptureInvalidated);
    }
    static_cast<void>(cudaGetLastError());
}

TEST_CASE("work is launched call by call whatever error code a capture or a call within it returns") {
    struct {
        cuda::stream own{};
        [[nodiscard]] cudaStream_t stream() const { return own.get(); }
        [[nodiscard]] std::int64_t scratch_bytes() const { return 0; }
    } math;
    for (int code = cudaErrorStreamCaptureUnsupported; code <= cudaErrorStreamCaptureWrongThread; ++code) {
        const auto how = static_cast<cudaError_t>(code);
        for (const bool thrown : {false, true}) {
            CAPTURE(cudaGetErrorName(how));
            CAPTURE(thrown);
            const pulse::test::stderr_text said;
            cuda::step_graphs graphs{math, std::vector<std::string>{"one", "two"}};
            const device_array<int> x(std::vector<int>{0});
            for (int step = 0; step != 3; ++step) {
                for (const std::size_t i : {0, 1}) {
                    graphs.run(
                        i, [&](auto&& visit) { visit(static_cast<const void*>(x.data())); },
                        [&] {
                            cuda::launch(add_once_kernel<int>, 1, 1, 0, math.stream(), x.data(), 1, x.data());
                            if (cuda::capture_of(math.stream()) == 0) { return; }
                            if (thrown) { throw cuda::cuda_error(how, "a call", std::source_location::current()); }
                            CHECK(!emulated_cuda::end_captures(how));
                        });
                }
            }
            CHECK(x.download(math.stream())[0] == 6);
            CHECK(graphs.given_up() == 2);
            CAPTURE(said.text());
            CHECK(said.count("pulse: one runs call by call from now on") == 1);
            CHECK(said.count("two") == 0);
            CHECK(said.count(std::string{cudaGetErrorName(how)} + ",") == 1);
        }
    }
}

TEST_CASE("work of a stream that cannot be captured is started call by call") {
    struct {
        [[nodiscard]] static cudaStream_t stream() { return nullptr; }
        [[nodiscard]] static std::int64_t scratch_bytes() { return 0; }
    } math;
    const pulse::test::stderr_text said;
    cuda::step_graphs graphs{math, std::vector<std::string>{"one"}};
    const device_array<int> x(std::vector<int>{0});
    for (int step = 0; step != 3; ++step) {
        graphs.run(
            0, [&](auto&& visit) { visit(static_cast<const void*>(x.data())); },
            [&] { cuda::launch(add_once_kernel<int>, 1, 1, 0, math.stream(), x.data(), 1, x.data()); });
    }
    CHECK(x.download(math.stream())[0] == 3);
    CHECK(graphs.given_up() == 1);
    CHECK(said.count("cudaErrorStreamCaptureUnsupported,") == 1);
}

TEST_CASE("an exception of a library that ended a capture with an open branch ends only the capture") {
    struct {
        cuda::stream own{};
        [[nodiscard]] cudaStream_t stream() const { return own.get(); }
        [[nodiscard]] std::int64_t scratch_bytes() const { return 0; }
    } math;
    const pulse::test::stderr_text said;
    const cuda::stream side;
    cuda::step_graphs graphs{math, std::vector<std::string>{"one"}};
    const device_array<int> x(std::vector<int>{0});
    for (int step = 0; step != 3; ++step) {
        graphs.run(
            0, [&](auto&& visit) { visit(static_cast<const void*>(x.data())); },
            [&] {
                cuda::launch(add_once_kernel<int>, 1, 1, 0, math.stream(), x.data(), 1, x.data());
                if (cuda::capture_of(math.stream()) == 0) { return; }
                side.wait(math.own);
                static_cast<void>(cudaStreamSynchronize(math.stream()));
                static_cast<void>(cudaGetLastError());
                throw pulse::error{"a library"};
            });
    }
    CHECK(x.download(math.stream())[0] == 3);
    CHECK(graphs.given_up() == 1);
    CHECK(said.count("a library") == 1);
}
