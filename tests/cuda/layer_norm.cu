#include <doctest/doctest.h>

#include <vector>

#include <pulse/cuda/kernels/layer_norm_backward.cuh>

#include <support/operations/norms.hpp>

#include <device_side.hpp>

namespace cuda = pulse::cuda;
using pulse::into;
using pulse::layer_norm_shape;
using namespace pulse::test;

namespace {

template <class T>
void check_rows(kernel_trial<T>& t, int features, std::int64_t rows, int multiprocessors, int offset = 0,
                double shift = 0.3) {
    t.side.on.multiprocessors = multiprocessors;
    t.offset = offset;
    check_layer_norm(t, {features, 1e-5}, rows, shift);
}

} // namespace

TEST_CASE_TEMPLATE("cuda layer norm and its gradients equal the plain loops in double", T, __nv_bfloat16, __half,
                   float) {
    kernel_trial<T> t{51};
    // rows in registers with 2, 3, 5 and 10 accesses per lane; longer ones; features that are no multiple of a pack
    for (const int features : {8, 320, 512, 640, 1152, 2000, 5000, 1, 2, 33, 77, 1281}) {
        check_rows(t, features, t.draw.between(1, 11), t.draw.between(1, 3));
    }
    check_rows(t, 64, 300, 2);
    check_rows(t, 36, 300, 132);
}

TEST_CASE_TEMPLATE("cuda layer norm takes tensors that start anywhere and rows far from zero", T, __half, float) {
    kernel_trial<T> t{52};
    check_rows(t, 320, 9, 3, 1);
    check_rows(t, 320, 9, 3, 0, 1000.0);
    check_rows(t, 75, 9, 3, 0, -200.0);
}

TEST_CASE_TEMPLATE("cuda layer norm's gradients have the bits of one kernel that keeps rows and sums in registers", T,
                   __nv_bfloat16, float) {
    source draw{54};
    constexpr int N = cuda::pack_size<T>;
    for (const int features : {32 * N * 5, 32 * N * 5 - 16 * N, 32 * N * 3 + N}) { // half an access; a single lane
        CAPTURE(features);
        const std::int64_t rows = 70;
        const std::int64_t n = rows * features;
        const layer_norm_shape s{features};
        const tensor<T> x(draw.normal<T>(n));
        const tensor<T> dy(draw.normal<T>(n));
        const tensor<T> gamma(draw.normal<T>(features));
        const tensor<float> statistics(draw.normal<float>(2 * rows));
        const tensor<T> residual(draw.normal<T>(n));
        const tensor<T> dx(n);
        const tensor<T> wanted(n);
        const tensor<float> dgamma(features);
        const tensor<float> dbeta(features);
        const device_queue queue(cuda::layer_norm_backward_scratch_bytes(s, rows));
        cuda::queue on = queue.on();
        on.multiprocessors = 2;
        const unsigned blocks = 4; // two per multiprocessor
        cuda::layer_norm_backward(on, s, rows, x.data(), gamma.data(), statistics.data(), dy.data(), dx.data(),
                                  {dgamma.data(), into::write}, {dbeta.data(), into::write}, into::add,
                                  static_cast<const T*>(residual.data()));
        const tensor<float> sums(std::int64_t{blocks} * 2 * features);
        const cuda::layer_norm_gradient<T> d{features,  rows,          x.data(),        gamma.data(), statistics.data(),
                                             dy.data(), wanted.data(), residual.data(), sums.data()};
        cuda::launch(cuda::layer_norm_gradient_kernel<T, N, 5>, dim3(blocks), dim3(cuda::row_warps * 32),
                     sizeof(float) * cuda::row_warps * 2 * features, on.stream, d);
        const tensor<float> wanted_dgamma(features);
        const tensor<float> wanted_dbeta(features);
        cuda::column_sums<float, float>(on, 1, blocks, 2 * features, sums.data(),
                                        {wanted_dgamma.data(), wanted_dbeta.data(), features}, into::write,
                                        reinterpret_cast<float*>(on.scratch));
        CHECK(dx.download(queue) == wanted.download(queue));
        CHECK(dgamma.download(queue) == wanted_dgamma.download(queue));
        CHECK(dbeta.download(queue) == wanted_dbeta.download(queue));
    }
}

TEST_CASE("cuda layer norm gives the same bits twice") {
    source draw{53};
    for (const int features : {640, 31}) {
        const layer_norm_shape s{features};
        const std::int64_t rows = 100;
        const tensor<float> x(draw.normal<float>(rows * features));
        const tensor<float> dy(draw.normal<float>(rows * features));
        const tensor<float> gamma(draw.normal<float>(features));
        std::vector<doubles> made;
        for (int round = 0; round != 2; ++round) {
            const device_queue queue(cuda::layer_norm_backward_scratch_bytes(s, rows));
            const tensor<float> y(rows * features);
            const tensor<float> statistics(2 * rows);
            const tensor<float> dx(rows * features);
            const tensor<float> dgamma(doubles(static_cast<std::size_t>(features), 0.0));
            const tensor<float> dbeta(doubles(static_cast<std::size_t>(features), 0.0));
            cuda::layer_norm(queue.on(), s, rows, x.data(), gamma.data(), gamma.data(), y.data(), statistics.data());
            cuda::layer_norm_backward(queue.on(), s, rows, x.data(), gamma.data(), statistics.data(), dy.data(),
                                      dx.data(), dgamma.data(), dbeta.data(), into::write);
            for (const auto* t : {&y, &statistics, &dx, &dgamma, &dbeta}) { made.push_back(t->download(queue)); }
        }
        for (std::size_t i = 0; i != 5; ++i) { CHECK(made[i] == made[i + 5]); }
    }
}

TEST_CASE("cuda layer norm of no rows does nothing, and refuses sizes that are none") {
    const device_queue queue;
    const auto run = [&](int features, std::int64_t rows) {
        cuda::layer_norm<float>(queue.on(), {features}, rows, nullptr, nullptr, nullptr, nullptr, nullptr);
        cuda::layer_norm_backward<float>(queue.on(), {features}, rows, nullptr, nullptr, nullptr, nullptr, nullptr,
                                         nullptr, nullptr, into::write);
    };
    CHECK_NOTHROW(run(8, 0));
    CHECK_THROWS_AS(run(0, 4), pulse::input_error);
    CHECK_THROWS_AS(run(8, -1), pulse::input_error);
}
