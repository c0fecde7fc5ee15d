#include <doctest/doctest.h>

#include <atomic>
#include <vector>

#include <pulse/cuda/event.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/stream.cuh>
#include <pulse/cuda/thread_transport.cuh>

#include <device_array.hpp>
#include <device_ring.hpp>
#include <emulated/runtime.hpp>

namespace cuda = pulse::cuda;
using pulse::test::device_array;

namespace {

template <class T>
__global__ void set_kernel(T* y, T value) {
    *y = value;
}

template <class T>
__global__ void copy_kernel(const T* x, T* y) {
    *y = *x;
}

/// One stream writes x, another copies it to y; `ordered`: by an event.
double copied(bool ordered) {
    const device_array<int> x(std::vector<int>{1});
    const device_array<int> y(1);
    const cuda::stream writer;
    const cuda::stream reader;
    cuda::launch(set_kernel<int>, 1, 1, 0, writer.get(), x.data(), 2);
    if (ordered) { reader.wait(writer); }
    cuda::launch(copy_kernel<int>, 1, 1, 0, reader.get(), x.data(), y.data());
    const double result = y.download(reader.get())[0];
    writer.synchronize();
    return result;
}

} // namespace

TEST_CASE("a missing event wait is wrong data") {
    CHECK(copied(true) == 2);
    CHECK(copied(false) == 1);
}

TEST_CASE("streams run what is needed and no more") {
    const device_array<int> x(std::vector<int>{0});
    const cuda::stream on;
    cuda::event midway;
    const std::int64_t before = emulated_cuda::executed_kernels();
    cuda::launch(set_kernel<int>, 1, 1, 0, on.get(), x.data(), 1);
    midway.record(on.get());
    cuda::launch(set_kernel<int>, 1, 1, 0, on.get(), x.data(), 2);
    CHECK(emulated_cuda::executed_kernels() == before);
    CHECK(emulated_cuda::pending(on.get()) == 3);
    midway.synchronize();
    CHECK(emulated_cuda::executed_kernels() == before + 1);
    CHECK(midway.reached());
    CHECK(x.download()[0] == 1); // a copy in the default stream waits for no other stream
    // polling makes progress
    int asked = 0;
    while (!on.idle()) { ++asked; }
    CHECK(asked < 3);
    CHECK(x.download()[0] == 2);
}

TEST_CASE("an event stands for its last record when the wait is put in") {
    const device_array<int> x(std::vector<int>{0});
    const device_array<int> y(1);
    const cuda::stream first;
    const cuda::stream second;
    cuda::event point;
    second.wait(point); // never recorded: waits for nothing
    cuda::launch(set_kernel<int>, 1, 1, 0, first.get(), x.data(), 1);
    point.record(first.get());
    second.wait(point);
    cuda::launch(copy_kernel<int>, 1, 1, 0, second.get(), x.data(), y.data());
    cuda::launch(set_kernel<int>, 1, 1, 0, first.get(), x.data(), 2);
    point.record(first.get());
    CHECK(y.download(second.get())[0] == 1);
    point.synchronize();
    CHECK(x.download()[0] == 2);
}

TEST_CASE("an event outlives its stream, also where another stream takes its address") {
    const device_array<int> x(std::vector<int>{0});
    const cuda::stream reader;
    for (int repeat = 0; repeat != 8; ++repeat) {
        cuda::event point;
        {
            const cuda::stream gone;
            cuda::launch(set_kernel<int>, 1, 1, 0, gone.get(), x.data(), repeat);
            point.record(gone.get());
            reader.wait(point);
        }
        const cuda::stream next;
        reader.wait(point);
        CHECK_NOTHROW(reader.synchronize());
        CHECK(x.download()[0] == repeat);
    }
}

TEST_CASE("copies from pinned memory read it when they run, from pageable memory at once") {
    const cuda::stream on;
    const cuda::pinned_memory<int> pinned(1);
    const cuda::device_memory<int> x(2);
    *pinned.data() = 1;
    int pageable = 1;
    cuda::copy_async<int>(x.data(), pinned.data(), 1, on.get());
    cuda::copy_async<int>(x.data() + 1, &pageable, 1, on.get());
    *pinned.data() = 2;
    pageable = 2;
    int back[2] = {};
    cuda::copy_async<int>(back, x.data(), 2, on.get()); // to pageable memory: done when it returns
    CHECK(back[0] == 2);
    CHECK(back[1] == 1);
}

TEST_CASE("blocking calls wait for what CUDA's wait for") {
    const device_array<int> x(std::vector<int>{1});
    const device_array<int> y(1);
    const cuda::stream on;
    const int pageable = 2;
    const auto seen = [&] {
        cuda::launch(copy_kernel<int>, 1, 1, 0, on.get(), x.data(), y.data());
        on.synchronize();
        return y.raw()[0];
    };
    cuda::check(cudaMemcpy(x.data(), &pageable, sizeof(int), cudaMemcpyHostToDevice), "cudaMemcpy");
    CHECK(seen() == 1); // staged but not arrived; raw() then waits for the default stream
    CHECK(seen() == 2);
    cuda::check(cudaMemset(x.data(), 0, sizeof(int)), "cudaMemset");
    CHECK(seen() == 2);
    CHECK(seen() == 0);
    cuda::upload(&pageable, x.data(), 1);
    CHECK(seen() == 2);
}

TEST_CASE("copies know what memory they are given") {
    const cuda::stream on;
    const cuda::device_memory<int> x(4);
    std::vector<int> host(8);
    const auto copy = [&](void* to, const void* from, std::size_t n, cudaMemcpyKind kind) {
        const cudaError_t status = cudaMemcpyAsync(to, from, n * sizeof(int), kind, on.get());
        static_cast<void>(cudaGetLastError());
        return status;
    };
    CHECK(copy(x.data(), host.data(), 4, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(copy(x.data(), host.data(), 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidMemcpyDirection);
    CHECK(copy(host.data(), x.data(), 4, cudaMemcpyDeviceToDevice) == cudaErrorInvalidMemcpyDirection);
    CHECK(copy(x.data(), host.data(), 5, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(copy(x.data() + 1, host.data(), 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaFree(host.data()) == cudaErrorInvalidValue);
    CHECK(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(host.data())) == cudaErrorInvalidResourceHandle);
    static_cast<void>(cudaGetLastError());
}

TEST_CASE("memory is given back") {
    const std::size_t device = emulated_cuda::device_bytes();
    const std::size_t pinned = emulated_cuda::pinned_bytes();
    {
        const cuda::device_memory<double> x(100);
        const cuda::pinned_memory<double> y(50);
        CHECK(emulated_cuda::device_bytes() == device + 800);
        CHECK(emulated_cuda::pinned_bytes() == pinned + 400);
    }
    CHECK(emulated_cuda::device_bytes() == device);
    CHECK(emulated_cuda::pinned_bytes() == pinned);
}

TEST_CASE("ranks on more devices than may be peers pass messages all the same") {
    for (const int most_peers : {0, 2, 3}) {
        const emulated_cuda::counting many{{.devices = 4, .most_peers = most_peers}};
        const pulse::test::device_ring ring{.count = 100, .rounds = 4, .asks = 2};
        std::atomic<int> wrong{0};
        for (int again = 0; again != 2; ++again) { // peers stay enabled
            CHECK_NOTHROW(
                cuda::run_ranks({0, 1, 2, 3}, {}, [&](cuda::thread_transport& t) { wrong += ring.wrong(t); }));
        }
        CHECK(wrong == 0);
    }
}
