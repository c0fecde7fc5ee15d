#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <emulated/runtime.hpp>

#include <pulse/cuda/error.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/products.cuh>
#include <pulse/cuda/scratch.cuh>
#include <pulse/cuda/step_graphs.cuh>
#include <pulse/cuda/stream.cuh>

namespace cuda = pulse::cuda;

namespace {

template <class T>
__global__ void halve_kernel(const T* x, T* y) {
    *y = *x / 2;
}

/// While one lives, the device only counts.
struct counting {
    struct seen {
        std::string call{};
        std::int64_t bytes{};
        std::int64_t flops{};
        [[nodiscard]] bool operator==(const seen&) const = default;
    };
    std::vector<seen> given{}; ///< when enqueued
    std::vector<seen> done{};
    emulated_cuda::counting device{{.multiprocessors = 132,
                                    .memory_bytes = std::size_t{1} << 44U,
                                    .note = [this](const emulated_cuda::work& what) -> std::function<void()> {
                                        seen now{std::string{what.call}, what.bytes, what.flops};
                                        if (what.kernel != nullptr) {
                                            now = {"kernel", static_cast<std::int64_t>(what.arguments.size()), 0};
                                        }
                                        given.push_back(now);
                                        return [this, now] { done.push_back(now); };
                                    }}};
};

} // namespace

TEST_CASE("a counted device does nothing with its memory, and works again when it is no longer counted") {
    const std::int64_t before = emulated_cuda::executed_kernels();
    {
        counting on;
        const cuda::stream main;
        const std::size_t many = std::size_t{1} << 27U;
        const cuda::device_memory<float> x{many};
        const cuda::device_memory<float> y{many};
        cuda::pinned_memory<float> read{2};
        read.data()[1] = 7;
        cuda::fill_bytes_async(x.data(), 0, many, main.get());
        cuda::launch(halve_kernel<float>, 1, 1, 0, main.get(), x.data(), y.data());
        cuda::copy_async(y.data(), static_cast<const float*>(x.data()), many, main.get());
        cuda::copy_async(read.data(), static_cast<const float*>(y.data()), 2, main.get());
        CHECK(on.given.size() == 4);
        CHECK(on.done.empty());
        main.synchronize();
        const auto bytes = static_cast<std::int64_t>(4 * many);
        CHECK(on.done ==
              std::vector<counting::seen>{
                  {"fill", bytes, 0}, {"kernel", 2 * sizeof(void*), 0}, {"copy", 2 * bytes, 0}, {"copy", 8, 0}});
        CHECK(read.data()[0] == 0);
        CHECK(read.data()[1] == 7);
        CHECK(emulated_cuda::allocated_bytes(x.data()) == bytes);
        CHECK(emulated_cuda::allocated_bytes(x.data() + 1) == 0);
    }
    CHECK(emulated_cuda::executed_kernels() == before);
    const cuda::device_memory<float> x{1};
    const cuda::stream main;
    cuda::launch(halve_kernel<float>, 1, 1, 0, main.get(), x.data(), x.data());
    main.synchronize();
    CHECK(emulated_cuda::executed_kernels() == before + 1);
}

TEST_CASE("a device does not begin to count where memory is allocated or a stream has work") {
    const cuda::stream main;
    {
        const cuda::device_memory<float> x{1};
        CHECK_THROWS_AS(emulated_cuda::count_on({}), std::logic_error);
    }
    cuda::check(cudaLaunchHostFunc(
                    main.get(), [](void*) {}, nullptr),
                "cudaLaunchHostFunc");
    CHECK_THROWS_AS(emulated_cuda::count_on({}), std::logic_error);
}

TEST_CASE("a graph's work is counted in every replay, and reads of pageable memory when they are requested") {
    counting on;
    const cuda::stream main;
    const cuda::device_memory<int> x{1};
    const cuda::captured_work work{main.get(),
                                   [&] { cuda::launch(halve_kernel<int>, 1, 1, 0, main.get(), x.data(), x.data()); }};
    work.start(main.get());
    work.start(main.get());
    main.synchronize();
    CHECK(on.given.size() == 1);
    CHECK(on.done.size() == 2);
    int read = 5;
    cuda::copy_async(&read, static_cast<const int*>(x.data()), 1, main.get());
    CHECK(on.done.size() == 3);
    CHECK(read == 5);
}

TEST_CASE("a product that is counted says what it moves and multiplies") {
    counting on;
    const cuda::stream main;
    cuda::scratch_arena scratch{main.get()};
    const cuda::queue queue{main.get(), 132, nullptr};
    cuda::products<float> products{{}, false};
    constexpr std::int64_t rows = 1 << 16;
    constexpr std::int64_t in = 1024;
    constexpr std::int64_t out = 512;
    const cuda::device_memory<float> x(rows * in);
    const cuda::device_memory<float> w(in * out);
    const cuda::device_memory<float> y(rows * out);
    products.forward(queue, scratch, {in, out}, in, rows, x.data(), w.data(), nullptr, y.data(), pulse::into::write);
    products.forward(queue, scratch, {in, out}, in, rows, x.data(), w.data(), nullptr, y.data(), pulse::into::add);
    main.synchronize();
    const std::int64_t bytes = 4 * (rows * in + in * out + rows * out);
    const std::int64_t flops = 2 * rows * in * out;
    CHECK(on.done ==
          std::vector<counting::seen>{{"product", bytes, flops}, {"product", bytes + 4 * rows * out, flops}});
}

TEST_CASE("products of one input that are made at once are counted as one, which reads the input once") {
    counting on;
    const cuda::stream main;
    cuda::scratch_arena scratch{main.get()};
    const cuda::queue queue{main.get(), 132, nullptr};
    cuda::products<float> products{{}, false};
    constexpr std::int64_t rows = 1 << 16;
    constexpr std::int64_t in = 1024;
    constexpr std::int64_t out = 512;
    const cuda::device_memory<float> x(rows * in);
    const cuda::device_memory<float> w(3 * in * out);
    const cuda::device_memory<float> y(3 * rows * out);
    const pulse::linear_batch_shape three{{in, out}, 3, in * out, rows * out};
    products.forward(queue, scratch, three, rows, x.data(), w.data(), y.data(), pulse::into::write);
    products.backward_weight(queue, scratch, three, rows, x.data(), y.data(), w.data());
    main.synchronize();
    const std::int64_t bytes = 4 * (rows * in + 3 * (in * out + rows * out));
    const std::int64_t flops = 3 * 2 * rows * in * out;
    CHECK(on.done ==
          std::vector<counting::seen>{{"product", bytes, flops}, {"product", bytes + 3 * 4 * in * out, flops}});
}
