#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <pulse/cuda/device.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/stream.cuh>

#include <device_array.hpp>

namespace cuda = pulse::cuda;

namespace {

/// Each block reverses its values through dynamic shared memory.
template <class T>
__global__ void reverse_kernel(const T* x, T* y) {
    T* held = cuda::shared_memory<T>();
    const std::uintptr_t misaligned = reinterpret_cast<std::uintptr_t>(held) % 128;
    held[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = misaligned == 0 ? held[blockDim.x - 1 - threadIdx.x] : T{-1};
}

} // namespace

TEST_CASE("the device says what it is") {
    REQUIRE(cuda::device_count() > 0);
    const cuda::device_properties found = cuda::properties_of(cuda::current_device());
    CHECK_FALSE(found.name.empty());
    CHECK(found.multiprocessors > 0);
    CHECK(found.compute_major >= 7);
    CHECK(found.memory_bytes > (std::size_t{1} << 30));
    CHECK(found.shared_bytes_per_block_optin > found.shared_bytes_per_block);
    const std::string count = std::to_string(cuda::device_count());
    CHECK_THROWS_WITH_AS(cuda::select_device(99), ("CUDA device 99: there are " + count + " devices").c_str(),
                         pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(cuda::properties_of(-1)), pulse::input_error);
    cuda::select_device(0);
    CHECK(cuda::current_device() == 0);
}

TEST_CASE("values go to the device and back through pinned memory") {
    constexpr std::size_t n = 1000;
    const cuda::stream on;
    const cuda::pinned_memory<int> out(n);
    cuda::pinned_memory<int> back(n);
    const cuda::device_memory<int> there(n);
    std::iota(out.data(), out.data() + n, 7);
    cuda::copy_async(there.data(), out.data(), n, on.get());
    cuda::copy_async<int>(back.data(), there.data(), n, on.get());
    on.synchronize();
    for (std::size_t i = 0; i < n; ++i) { CHECK(back.data()[i] == static_cast<int>(i) + 7); }
    cuda::fill_bytes_async(there.data(), 0, n - 1, on.get());
    cuda::copy_async<int>(back.data(), there.data(), n, on.get());
    on.synchronize();
    CHECK(back.data()[n - 2] == 0);
    CHECK(back.data()[n - 1] == static_cast<int>(n) + 6);
    int* address = back.data();
    const cuda::pinned_memory<int> moved(std::move(back));
    CHECK(moved.data() == address);
    CHECK(back.size() == 0); // NOLINT(bugprone-use-after-move)
    const cuda::device_memory<int> none(0);
    CHECK(none.data() == nullptr);
}

TEST_CASE("no memory: the error says what was asked and what is free") {
    const std::size_t asked = std::size_t{1} << 48;
    try {
        const cuda::device_memory<> huge(asked);
        FAIL("that many bytes cannot be there");
    } catch (const cuda::out_of_memory& thrown) {
        CHECK(thrown.code == cudaErrorMemoryAllocation);
        CHECK(thrown.asked_bytes == asked);
        CHECK(thrown.free_bytes > 0);
        CHECK(thrown.free_bytes < asked);
        const std::string text = thrown.what();
        CAPTURE(text);
        CHECK(text.find("cudaMalloc") == 0);
        CHECK(text.find("281474976710656 bytes were asked for, " + std::to_string(thrown.free_bytes) + " of ") !=
              std::string::npos);
        CHECK(text.find("memory.cu:") != std::string::npos); // the caller's location
    }
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK_THROWS_AS(cuda::device_memory<double>(std::size_t{1} << 62), pulse::input_error);
}

TEST_CASE("an error of the runtime names call, code and place, and is cleared") {
    const int line = __LINE__ + 2;
    try {
        cuda::check(cudaSetDevice(99), "cudaSetDevice");
        FAIL("there is no such device");
    } catch (const cuda::cuda_error& thrown) {
        CHECK(thrown.code != cudaSuccess);
        CHECK(thrown.call == "cudaSetDevice");
        CHECK(static_cast<int>(thrown.where.line()) == line);
        const std::string text = thrown.what();
        CAPTURE(text);
        CHECK(text.find(std::string("cudaSetDevice: ") + cudaGetErrorName(thrown.code)) == 0);
        CHECK(text.find("memory.cu:" + std::to_string(line)) != std::string::npos);
    }
    CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("an arena hands out aligned buffers that do not overlap") {
    cuda::arena memory(cuda::arena::aligned_size(3) + cuda::arena::aligned_size(8 * 100) + 256);
    const auto* bytes = memory.take<std::byte>(3);
    const auto* doubles = memory.take<double>(100);
    CHECK(reinterpret_cast<std::uintptr_t>(bytes) % cuda::arena_alignment == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(doubles) % cuda::arena_alignment == 0);
    CHECK(reinterpret_cast<const std::byte*>(doubles) >= bytes + 3);
    CHECK(memory.used_bytes() == 256 + 1024);
    CHECK(memory.take<float>(0) != nullptr);
    CHECK_THROWS_WITH_AS(static_cast<void>(memory.take<float>(65)),
                         "arena of 1536 bytes: 65 values of 4 bytes were asked for, 256 bytes are left",
                         pulse::input_error);
    CHECK(memory.take<float>(64) + 64 == reinterpret_cast<const float*>(memory.data() + memory.bytes()));
}

TEST_CASE("dynamic shared memory: little, and more than every kernel may have") {
    const pulse::test::device_queue queue;
    std::vector<double> values(8 * 96);
    std::iota(values.begin(), values.end(), 0.0);
    const pulse::test::device_array<float> x(values);
    for (const std::size_t bytes : {std::size_t{384}, std::size_t{100} << 10, std::size_t{96} << 10}) {
        const pulse::test::device_array<float> y(values.size());
        cuda::launch(reverse_kernel<float>, 8, 96, bytes, queue.stream(), x.data(), y.data());
        const std::vector<double> turned = y.download(queue.stream());
        for (std::size_t i = 0; i < values.size(); ++i) { CHECK(turned[i] == values[i / 96 * 96 + 95 - i % 96]); }
    }
    const pulse::test::device_array<float> y(values.size());
    CHECK_THROWS_AS(
        cuda::launch(reverse_kernel<float>, 8, 96, std::size_t{1} << 20, queue.stream(), x.data(), y.data()),
        cuda::cuda_error);
    CHECK(cudaGetLastError() == cudaSuccess);
}
