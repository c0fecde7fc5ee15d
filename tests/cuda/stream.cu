#include <doctest/doctest.h>

#include <vector>

#include <pulse/cuda/event.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/stream.cuh>

#include <device_array.hpp>

namespace cuda = pulse::cuda;
using pulse::test::device_array;

namespace {

template <class T>
__global__ void add_kernel(const T* x, int n, T amount, T* y) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) { y[i] = x[i] + amount; }
}

} // namespace

TEST_CASE("work of one stream runs in order, and an event orders two") {
    constexpr int n = 1000;
    const device_array<int> x(std::vector<int>(n, 0));
    const device_array<int> y(n);
    const device_array<int> z(n);
    const cuda::stream first;
    const cuda::stream second;
    cuda::event written;
    for (int round = 0; round < 3; ++round) {
        cuda::launch(add_kernel<int>, 4, 256, 0, first.get(), x.data(), n, 1, x.data());
        cuda::launch(add_kernel<int>, 4, 256, 0, first.get(), x.data(), n, 10, y.data());
        written.record(first.get());
        second.wait(written);
        cuda::launch(add_kernel<int>, 4, 256, 0, second.get(), y.data(), n, 100, z.data());
        first.wait(second); // y may be overwritten again
    }
    second.synchronize();
    CHECK(written.reached());
    CHECK(second.idle());
    for (const double value : z.download()) { CHECK(value == 113); }
    first.synchronize();
}

TEST_CASE("events with timing measure the time between them") {
    const cuda::stream on;
    cuda::event before(cuda::timing::on);
    cuda::event after(cuda::timing::on);
    const device_array<float> x(std::size_t{1} << 20);
    before.record(on.get());
    cuda::fill_bytes_async(x.data(), 0, x.size(), on.get());
    after.record(on.get());
    after.synchronize();
    CHECK(cuda::seconds_between(before, after) > 0);
    CHECK(cuda::seconds_between(before, after) < 10);
    const cuda::event untimed;
    CHECK_THROWS_AS(static_cast<void>(cuda::seconds_between(untimed, after)), cuda::cuda_error);
    // the error does not stick to the next call
    CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("streams and events move") {
    cuda::stream first;
    cudaStream_t handle = first.get();
    cuda::stream second(std::move(first));
    CHECK(second.get() == handle);
    CHECK(first.get() == nullptr); // NOLINT(bugprone-use-after-move)
    first = std::move(second);
    CHECK(first.get() == handle);
    cuda::event one;
    cuda::event two;
    cudaEvent_t kept = two.get();
    one = std::move(two);
    CHECK(one.get() == kept);
    CHECK(two.get() == nullptr); // NOLINT(bugprone-use-after-move)
    one.record(first.get());
    one.synchronize();
}

TEST_CASE("a launch that cannot start names its sizes") {
    const cuda::stream on;
    const device_array<int> x(32);
    CHECK_THROWS_WITH_AS(cuda::launch(add_kernel<int>, 1, 2000, 0, on.get(), x.data(), 32, 1, x.data()),
                         doctest::Contains("cudaErrorInvalid"), cuda::cuda_error);
    CHECK_THROWS_WITH_AS(cuda::launch(add_kernel<int>, 7, 2000, 0, on.get(), x.data(), 32, 1, x.data()),
                         doctest::Contains("grid 7x1x1, block 2000x1x1, 0 bytes of shared memory"), cuda::cuda_error);
    CHECK(cudaGetLastError() == cudaSuccess);
    cuda::launch(add_kernel<int>, 1, 32, 0, on.get(), x.data(), 32, 1, x.data());
    on.synchronize();
}
