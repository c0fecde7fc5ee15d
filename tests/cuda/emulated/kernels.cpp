#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include <emulated/runtime.hpp>

#include <pulse/core/error.hpp>
#include <pulse/cuda/kernels/column_sums.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/launch_limits.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/stream.cuh>

#include <device_array.hpp>

namespace cuda = pulse::cuda;
using pulse::test::device_array;
using pulse::test::device_queue;

namespace {

enum class flaw : std::uint8_t { none, no_barrier };

/// Sums each block's values: shuffles within warps, shared memory across.
template <flaw Flaw>
__global__ void block_sum(const float* x, int n, float* sums) {
    __shared__ float warp_sums[32];
    float sum = 0;
    for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += static_cast<int>(gridDim.x * blockDim.x)) {
        sum += x[i];
    }
    for (int offset = 16; offset > 0; offset /= 2) { sum += __shfl_xor_sync(0xffffffffu, sum, offset); }
    const unsigned warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) { warp_sums[warp] = sum; }
    if (Flaw != flaw::no_barrier) { __syncthreads(); }
    if (warp == 0) {
        sum = threadIdx.x < blockDim.x / 32 ? warp_sums[threadIdx.x] : 0.0f;
        for (int offset = 16; offset > 0; offset /= 2) { sum += __shfl_down_sync(0xffffffffu, sum, offset); }
        if (threadIdx.x == 0) { sums[blockIdx.x] = sum; }
    }
}

template <flaw Flaw>
std::vector<double> sums_of(const std::vector<double>& values, int blocks) {
    const device_array<float> x(values);
    const device_array<float> sums(static_cast<std::size_t>(blocks));
    const device_queue queue;
    cuda::launch(block_sum<Flaw>, static_cast<unsigned>(blocks), 256, 0, queue.stream(), x.data(),
                 static_cast<int>(values.size()), sums.data());
    return sums.download(queue.stream());
}

template <class T>
__global__ void lanes_kernel(T* from, T* up, T* down, T* across, T* segment) {
    const int lane = static_cast<int>(threadIdx.x);
    const T mine = static_cast<T>(100 + lane);
    from[lane] = __shfl_sync(0xffffffffu, mine, (lane + 5) % 32);
    up[lane] = __shfl_up_sync(0xffffffffu, mine, 3);
    down[lane] = __shfl_down_sync(0xffffffffu, mine, 3);
    across[lane] = __shfl_xor_sync(0xffffffffu, mine, 6);
    segment[lane] = __shfl_down_sync(0xffffffffu, mine, 2, 8);
}

template <int Way>
__global__ void stuck_kernel(float* y) {
    if constexpr (Way == 0) { // some threads leave before the barrier
        if (threadIdx.x == 7) { return; }
        __syncthreads();
    } else if constexpr (Way == 1) { // some threads leave before the shuffle
        if (threadIdx.x == 7) { return; }
        y[0] = __shfl_sync(0xffffffffu, 1.0f, 0);
    } else if constexpr (Way == 2) { // half a warp at the barrier, half at a shuffle
        if (threadIdx.x < 16) {
            __syncthreads();
        } else {
            y[0] = __shfl_sync(0xffffffffu, 1.0f, 0);
        }
    } else if constexpr (Way == 3) { // lanes shift by different amounts
        y[0] = __shfl_xor_sync(0xffffffffu, 1.0f, threadIdx.x == 3 ? 4 : 8);
    } else {
        y[0] = __shfl_sync(0xffffu, 1.0f, 0);
    }
}

template <class T>
__global__ void unwritten_shared(T* y) {
    y[threadIdx.x] = cuda::shared_memory<T>()[threadIdx.x];
}

template <class T>
__global__ void where_kernel(T* y) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    y[block * threads + thread] += static_cast<T>(1 + thread);
}

} // namespace

TEST_CASE("blocks sum by shuffles and shared memory") {
    std::mt19937 random(3);
    std::vector<double> values(5000);
    for (double& value : values) { value = static_cast<double>(random() % 64); } // sums are exact
    const std::vector<double> sums = sums_of<flaw::none>(values, 6);
    CHECK(std::accumulate(sums.begin(), sums.end(), 0.0) == std::accumulate(values.begin(), values.end(), 0.0));
}

TEST_CASE("a missing barrier is wrong data") {
    std::mt19937 random(4);
    std::vector<double> values(5000);
    for (double& value : values) { value = static_cast<double>(random() % 64); }
    // In most blocks the adding warp is not the last to run, so it reads values of another block too early. No two
    // blocks' values may be alike: which warps run first depends on how many kernels have run before.
    CHECK(sums_of<flaw::no_barrier>(values, 16) != sums_of<flaw::none>(values, 16));
}

TEST_CASE("shuffles read the lanes that CUDA's read") {
    std::vector<device_array<int>> y;
    for (int i = 0; i < 5; ++i) { y.emplace_back(32); }
    const device_queue queue;
    cuda::launch(lanes_kernel<int>, 1, 32, 0, queue.stream(), y[0].data(), y[1].data(), y[2].data(), y[3].data(),
                 y[4].data());
    queue.synchronize();
    for (int lane = 0; lane < 32; ++lane) {
        CAPTURE(lane);
        const auto at = static_cast<std::size_t>(lane);
        CHECK(y[0].raw()[at] == 100 + (lane + 5) % 32);
        CHECK(y[1].raw()[at] == 100 + (lane < 3 ? lane : lane - 3));
        CHECK(y[2].raw()[at] == 100 + (lane + 3 > 31 ? lane : lane + 3));
        CHECK(y[3].raw()[at] == 100 + (lane ^ 6));
        CHECK(y[4].raw()[at] == 100 + (lane % 8 + 2 > 7 ? lane : lane + 2));
    }
}

TEST_CASE("what would hang on a device is an error that names the thread") {
    const device_array<float> y(1);
    const device_queue queue;
    const auto fails_with = [&](void (*kernel)(float*), unsigned threads, const char* text) {
        cuda::launch(kernel, 3, threads, 0, queue.stream(), y.data());
        CHECK_THROWS_WITH_AS(queue.synchronize(), doctest::Contains(text), cuda::cuda_error);
    };
    fails_with(stuck_kernel<0>, 64, "waits at __syncthreads for threads that do not come, thread (7, 0, 0) has ended");
    fails_with(stuck_kernel<1>, 64,
               "__shfl_sync by 0 of width 32 for lanes that do not come, thread (7, 0, 0) has ended");
    fails_with(stuck_kernel<2>, 32, "is at __syncthreads");
    fails_with(stuck_kernel<3>, 32, "__shfl_xor_sync by 4 of width 32");
    fails_with(stuck_kernel<4>, 32, "__shfl_sync with a partial mask");
    // and the next kernel runs
    cuda::launch(block_sum<flaw::none>, 1, 64, 0, queue.stream(), y.data(), 0, y.data());
    CHECK(y.download(queue.stream())[0] == 0);
}

TEST_CASE("fresh memory is not a number, wherever it is") {
    const cuda::device_memory<float> device(33);
    const cuda::pinned_memory<float> pinned(33);
    const device_array<float> shared(64);
    const device_queue queue;
    std::vector<float> values(33);
    cuda::check(cudaMemcpy(values.data(), device.data(), device.bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (std::size_t i = 0; i < 33; ++i) {
        CHECK(std::isnan(values[i]));
        CHECK(std::isnan(pinned.data()[i]));
    }
    cuda::fill_bytes_async(shared.data(), 0, 64, queue.stream());
    cuda::launch(unwritten_shared<float>, 1, 64, 64 * sizeof(float), queue.stream(), shared.data());
    for (const double value : shared.download(queue.stream())) { CHECK(std::isnan(value)); }
}

TEST_CASE("a kernel has 48 KiB of shared memory, and more where the device has it and it was allowed") {
    const device_array<float> y(64);
    const device_queue queue;
    const auto kernel = unwritten_shared<float>;
    const auto* const name = reinterpret_cast<const void*>(kernel);
    const auto unasked = [&](std::size_t bytes) {
        return emulated_cuda::enqueue_kernel(1, 64, bytes, queue.stream(), [] {}, {.kernel = name});
    };
    const auto launch = [&](std::size_t bytes) { cuda::launch(kernel, 1, 64, bytes, queue.stream(), y.data()); };
    CHECK(unasked(48 * 1024) == cudaSuccess);
    CHECK(unasked(48 * 1024 + 1) == cudaErrorInvalidValue);
    launch(99 * 1024);
    CHECK(unasked(99 * 1024) == cudaSuccess);
    CHECK(unasked(99 * 1024 + 1) == cudaErrorInvalidValue);
    CHECK_THROWS_AS(launch(227 * 1024 + 1), cuda::cuda_error);
    launch(160 * 1024);
    emulated_cuda::set_shared_bytes_limit(99 * 1024);
    CHECK(cuda::most_dynamic_shared_bytes() == 99 * 1024);
    CHECK(cudaFuncSetAttribute(name, cudaFuncAttributeMaxDynamicSharedMemorySize, 99 * 1024 + 1) ==
          cudaErrorInvalidValue);
    static_cast<void>(cudaGetLastError());
    CHECK_THROWS_AS(launch(160 * 1024), cuda::cuda_error);
    CHECK_THROWS_AS(launch(100 * 1024), cuda::cuda_error);
    launch(99 * 1024);
    emulated_cuda::set_shared_bytes_limit(227 * 1024);
    queue.synchronize();
}

TEST_CASE("a batch for which a grid has no rows is an input error") {
    const device_array<float> y(8);
    const device_queue queue;
    CHECK_THROWS_WITH_AS(cuda::sum_pixels<float>({queue.stream(), 1, nullptr}, 65536, 1, 8, y.data(), y.data()),
                         doctest::Contains("65536"), pulse::input_error);
    CHECK_THROWS_AS(cuda::launch(where_kernel<int>, dim3(1, 1, 65536), 32, 0, queue.stream(), nullptr),
                    pulse::input_error);
}

TEST_CASE("every thread of every block runs once, whatever the shape") {
    for (const auto& [grid, block] :
         {std::pair{dim3(3, 2, 2), dim3(5, 3, 2)}, std::pair{dim3(7), dim3(1024)}, std::pair{dim3(1, 5), dim3(33)}}) {
        const std::size_t threads = std::size_t{block.x} * block.y * block.z;
        const std::size_t blocks = std::size_t{grid.x} * grid.y * grid.z;
        const device_array<int> y(std::vector<int>(threads * blocks, 0));
        const device_queue queue;
        cuda::launch(where_kernel<int>, grid, block, 0, queue.stream(), y.data());
        const std::vector<int> values = y.raw(queue.stream());
        for (std::size_t i = 0; i < values.size(); ++i) { CHECK(values[i] == static_cast<int>(i % threads) + 1); }
        CHECK(y.intact());
    }
}

TEST_CASE("several host threads, each with its streams") {
    std::vector<double> sums(4);
    {
        std::vector<std::jthread> threads;
        for (std::size_t t = 0; t < sums.size(); ++t) {
            threads.emplace_back([t, &sums] {
                const std::vector<double> values(1000, static_cast<double>(t + 1));
                for (int round = 0; round < 5; ++round) { sums[t] += sums_of<flaw::none>(values, 1)[0]; }
            });
        }
    }
    for (std::size_t t = 0; t < sums.size(); ++t) { CHECK(sums[t] == 5000.0 * static_cast<double>(t + 1)); }
}
