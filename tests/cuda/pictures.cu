#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <pulse/cuda/kernels/group_norm_pieces.cuh>
#include <pulse/cuda/kernels/posterior.cuh>
#include <pulse/reference/backend.hpp>

#include <compare.hpp>

namespace cuda = pulse::cuda;
using pulse::group_norm_shape;
using namespace pulse::test;
using doubles = std::vector<double>;
using reference = pulse::reference::backend<double>;

namespace {

/// Statistics of whole pictures, then `rows` rows of the last by them, into rows that lie apart.
template <class T>
void check_pieces(source& draw, const group_norm_shape& s, int rows, int batch, int multiprocessors, int offset = 0) {
    CAPTURE(s.channels);
    CAPTURE(s.groups);
    CAPTURE(s.pixels);
    CAPTURE(rows);
    CAPTURE(offset);
    const std::int64_t n = std::int64_t{s.pixels} * s.channels;
    const int width = s.pixels / rows;
    const std::int64_t stride = std::int64_t{width + 2} * s.channels;
    const doubles x = draw.normal<T>(batch * n, 1.5, 0.3);
    const doubles gamma = draw.normal<T>(s.channels);
    const doubles beta = draw.normal<T>(s.channels);
    doubles y = draw.normal<T>(rows * stride); // what lies between the rows stays
    doubles statistics(static_cast<std::size_t>(batch) * s.groups * 2);
    const tensor<T> device_x(x, offset);
    const tensor<T> device_gamma(gamma, offset);
    const tensor<T> device_beta(beta, offset);
    const tensor<T> device_y(y, offset);
    const tensor<float> device_statistics(static_cast<std::int64_t>(statistics.size()));
    const device_queue queue(cuda::group_norm_scratch_bytes(s, batch));
    cuda::queue on = queue.on();
    on.multiprocessors = multiprocessors;

    reference plain;
    plain.group_norm_statistics(s, batch, x.data(), statistics.data());
    cuda::group_norm_statistics(on, s, batch, device_x.data(), device_statistics.data());
    const double relative = 16.0 * float_epsilon;
    CHECK(worst<float>(device_statistics.download(queue), statistics, relative) < 1.0);
    CHECK(device_statistics.intact(queue));

    const std::int64_t known = (batch - 1) * std::int64_t{s.groups} * 2;
    plain.group_norm_rows(s, rows, width, x.data() + (batch - 1) * n, gamma.data(), beta.data(),
                          statistics.data() + known, y.data(), stride);
    cuda::group_norm_rows(on, s, rows, width, static_cast<const T*>(device_x.data() + (batch - 1) * n),
                          static_cast<const T*>(device_gamma.data()), static_cast<const T*>(device_beta.data()),
                          static_cast<const float*>(device_statistics.data() + known), device_y.data(), stride);
    CHECK(worst<T>(device_y.download(queue), y, relative) < 1.0);
    CHECK(device_y.intact(queue));
}

} // namespace

TEST_CASE_TEMPLATE("cuda statistics and rows of group norm equal the plain loops in double", T, __nv_bfloat16, __half,
                   float) {
    source draw{81};
    for (const bool silu : {false, true}) {
        check_pieces<T>(draw, {32, 0, 8, 60, 1e-6, silu}, 5, 2, 3);
        check_pieces<T>(draw, {128, 0, 32, 700, 1e-6, silu}, 7, 1, 132);
    }
    check_pieces<T>(draw, {17, 0, 1, 30, 1e-6, true}, 3, 3, 3);
    check_pieces<T>(draw, {5, 0, 5, 1, 1e-6, true}, 1, 1, 3);
    check_pieces<T>(draw, {32, 0, 8, 60, 1e-6, true}, 5, 2, 132, 3);
}

TEST_CASE_TEMPLATE("cuda posteriors are drawn as the plain loops in double draw them", T, __nv_bfloat16, __half,
                   float) {
    source draw{82};
    for (const int channels : {1, 4, 21}) {
        constexpr std::int64_t pixels = 37;
        doubles moments = draw.normal<T>(pixels * 2 * channels, 2.0);
        moments[static_cast<std::size_t>(channels)] = -50.0;    // held to -30
        moments[static_cast<std::size_t>(3 * channels)] = 22.0; // held to 20
        const doubles noise = draw.normal<T>(pixels * channels);
        doubles z(noise.size());
        reference{}.posterior(pixels, channels, 0.125, moments.data(), noise.data(), z.data());
        const tensor<T> device_moments(moments);
        const tensor<T> device_noise(noise);
        const tensor<T> device_z(pixels * channels);
        const device_queue queue;
        cuda::posterior(queue.on(), pixels, channels, 0.125F, static_cast<const T*>(device_moments.data()),
                        static_cast<const T*>(device_noise.data()), device_z.data());
        // each about as great as its own deviation
        const doubles got = device_z.download(queue);
        for (std::size_t i = 0; i != z.size(); ++i) {
            CHECK(worst<T>({got[i]}, {z[i]}, 64.0 * float_epsilon, std::abs(z[i]) + 1.0) < 1.0);
        }
        CHECK(device_z.intact(queue));
    }
}

TEST_CASE("cuda operations of pictures refuse shapes that are none") {
    const device_queue queue;
    const float* const nothing = nullptr;
    float* const nowhere = nullptr;
    CHECK_THROWS_WITH_AS(cuda::group_norm_statistics(queue.on(), {10, 0, 4, 6}, 1, nothing, nowhere),
                         "group_norm: 4 groups do not divide 10 channels", pulse::input_error);
    CHECK_THROWS_AS(
        cuda::group_norm_rows(queue.on(), {8, 8, 4, 6}, 1, 6, nothing, nothing, nothing, nothing, nowhere, 0),
        pulse::input_error);
    CHECK_THROWS_AS(cuda::posterior(queue.on(), 0, 4, 1.0F, nothing, nothing, nowhere), pulse::input_error);
}
