#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include <pulse/cuda/kernels/column_sums.cuh>
#include <pulse/cuda/kernels/geglu.cuh>
#include <pulse/cuda/kernels/patches.cuh>
#include <pulse/cuda/kernels/pointwise.cuh>
#include <pulse/cuda/kernels/sinusoid.cuh>
#include <pulse/reference/backend.hpp>

#include <compare.hpp>

namespace cuda = pulse::cuda;
using pulse::into;
using pulse::patch_shape;
using namespace pulse::test;
using doubles = std::vector<double>;
using reference = pulse::reference::backend<double>;

namespace {

/// What a function of a few rounded steps costs, relative to the greatest result.
inline constexpr double few_steps = 6.0 * float_epsilon;

struct device {
    explicit device(std::size_t scratch_bytes = 0, int multiprocessors = 3) : queue{scratch_bytes}, on{queue.on()} {
        on.multiprocessors = multiprocessors;
    }
    device_queue queue;
    cuda::queue on;
};

[[nodiscard]] double greatest(const doubles& values) {
    double found = 1.0;
    for (const double v : values) { found = std::max(found, std::abs(v)); }
    return found;
}

/// `scale` is the magnitude of what the results are made of.
template <class T>
void check_result(const device& at, const tensor<T>& got, const doubles& wanted, double relative, double scale) {
    CHECK(worst<T>(got.download(at.queue), wanted, relative, scale) < 1.0);
    CHECK(got.intact(at.queue));
}

/// An operation x -> y and one (x, dy) -> dx, each over n scalars that start `offset` behind an aligned address.
template <class T, class Forward, class Backward, class PlainForward, class PlainBackward>
void check_activation(source& draw, std::int64_t n, int offset, Forward forward, Backward backward, PlainForward plain,
                      PlainBackward plain_backward) {
    CAPTURE(n);
    CAPTURE(offset);
    const device at;
    const doubles x = draw.normal<T>(n, 3.0);
    const doubles dy = draw.normal<T>(n);
    const tensor<T> device_x(x, offset);
    const tensor<T> device_dy(dy, offset);
    doubles y(x.size());
    plain(n, x.data(), y.data());
    const tensor<T> device_y(n, offset);
    forward(at.on, n, device_x.data(), device_y.data());
    check_result(at, device_y, y, few_steps, greatest(x));
    for (const into how : {into::write, into::add}) {
        const doubles before = draw.normal<T>(n);
        doubles dx = before;
        plain_backward(n, x.data(), dy.data(), dx.data(), how);
        const tensor<T> device_dx = how == into::add ? tensor<T>(before, offset) : tensor<T>(n, offset);
        backward(at.on, n, device_x.data(), device_dy.data(), device_dx.data(), how);
        check_result(at, device_dx, dx, few_steps, greatest(x) * greatest(dy));
    }
    // in place
    doubles dx(x.size());
    plain_backward(n, x.data(), dy.data(), dx.data(), into::write);
    backward(at.on, n, device_x.data(), device_dy.data(), device_dy.data(), into::write);
    check_result(at, device_dy, dx, few_steps, greatest(x) * greatest(dy));
    forward(at.on, n, device_x.data(), device_x.data());
    check_result(at, device_x, y, few_steps, greatest(x));
}

} // namespace

TEST_CASE_TEMPLATE("cuda silu, gelu and gelu_tanh and their gradients equal the plain ones in double", T, __nv_bfloat16,
                   __half, float) {
    source draw{61};
    reference plain;
    for (const std::int64_t n : {1, 7, 64, 5003}) {
        for (const int offset : {0, 1}) {
            check_activation<T>(
                draw, n, offset, [](auto... a) { cuda::silu<T>(a...); },
                [](auto... a) { cuda::silu_backward<T>(a...); }, [&](auto... a) { plain.silu(a...); },
                [&](auto... a) { plain.silu_backward(a...); });
            check_activation<T>(
                draw, n, offset, [](auto... a) { cuda::gelu_tanh<T>(a...); },
                [](auto... a) { cuda::gelu_tanh_backward<T>(a...); }, [&](auto... a) { plain.gelu_tanh(a...); },
                [&](auto... a) { plain.gelu_tanh_backward(a...); });
            check_activation<T>(
                draw, n, offset, [](auto... a) { cuda::gelu<T>(a...); },
                [](auto... a) { cuda::gelu_backward<T>(a...); }, [&](auto... a) { plain.gelu(a...); },
                [&](auto... a) { plain.gelu_backward(a...); });
        }
    }
}

TEST_CASE("cuda activations keep their limits") {
    const doubles x{-1e4, -200.0, -90.0, -30.0, -10.0, -6.0, 0.0, 6.0, 30.0, 90.0, 200.0, 1e4};
    const auto n = static_cast<std::int64_t>(x.size());
    const device at;
    const tensor<float> device_x(x);
    const tensor<float> ones(doubles(x.size(), 1.0));
    reference plain;
    for (const bool gelu : {false, true}) {
        doubles y(x.size());
        doubles dx(x.size());
        const doubles one(x.size(), 1.0);
        const tensor<float> device_y(n);
        const tensor<float> device_dx(n);
        if (gelu) {
            plain.gelu(n, x.data(), y.data());
            plain.gelu_backward(n, x.data(), one.data(), dx.data(), into::write);
            cuda::gelu(at.on, n, device_x.data(), device_y.data());
            cuda::gelu_backward(at.on, n, device_x.data(), ones.data(), device_dx.data(), into::write);
        } else {
            plain.silu(n, x.data(), y.data());
            plain.silu_backward(n, x.data(), one.data(), dx.data(), into::write);
            cuda::silu(at.on, n, device_x.data(), device_y.data());
            cuda::silu_backward(at.on, n, device_x.data(), ones.data(), device_dx.data(), into::write);
        }
        // each by itself: 6e-7 times x for y; the slope at 6 is off by 5 times what the sigmoid is, 2^-22 at most
        const doubles got = device_y.download(at.queue);
        const doubles slope = device_dx.download(at.queue);
        for (std::size_t i = 0; i != x.size(); ++i) {
            CAPTURE(x[i]);
            CHECK(std::abs(got[i] - y[i]) <= 6e-7 * std::abs(x[i]));
            CHECK(std::abs(slope[i] - dx[i]) <= 1.2e-6);
        }
    }
}

TEST_CASE_TEMPLATE("cuda add, scale, copy and fill", T, __nv_bfloat16, __half, float) {
    source draw{62};
    reference plain;
    for (const std::int64_t n : {0, 1, 9, 512, 12345}) {
        for (const int offset : {0, 3}) {
            const device at;
            const doubles x = draw.normal<T>(n);
            doubles y = draw.normal<T>(n);
            const tensor<T> device_x(x, offset);
            const tensor<T> device_y(y, offset);
            const tensor<T> copied(n, offset);
            const tensor<T> filled(n, offset);
            plain.add(n, x.data(), y.data());
            cuda::add(at.on, n, device_x.data(), device_y.data());
            cuda::copy(at.on, n, device_x.data(), copied.data());
            doubles scaled(x.size());
            const tensor<T> device_scaled(n, offset);
            plain.scale(n, static_cast<double>(0.7f), x.data(), scaled.data());
            cuda::scale(at.on, n, 0.7f, device_x.data(), device_scaled.data());
            check_result(at, device_scaled, scaled, 0.0, 1.0);
            cuda::fill(at.on, n, 0.3f, filled.data());
            check_result(at, device_y, y, 0.0, 1.0);
            CHECK(copied.download(at.queue) == x);
            CHECK(filled.download(at.queue) == rounded<T>(doubles(x.size(), 0.3)));
            CHECK(copied.intact(at.queue));
            CHECK(filled.intact(at.queue));
        }
    }
}

TEST_CASE_TEMPLATE("cuda geglu and its gradient equal the plain ones in double", T, __nv_bfloat16, __half, float) {
    source draw{63};
    reference plain;
    for (const auto& [rows, features] : {std::pair{5, 64}, {1, 8}, {13, 7}, {40, 320}, {3, 1}}) {
        CAPTURE(features);
        const device at;
        const std::int64_t n = std::int64_t{rows} * features;
        const doubles x = draw.normal<T>(2 * n, 2.0);
        const doubles dy = draw.normal<T>(n);
        doubles y(dy.size());
        doubles dx(x.size());
        plain.geglu(rows, features, x.data(), y.data());
        plain.geglu_backward(rows, features, x.data(), dy.data(), dx.data());
        const tensor<T> device_x(x);
        const tensor<T> device_dy(dy);
        const tensor<T> device_y(n);
        const tensor<T> device_dx(2 * n);
        cuda::geglu(at.on, rows, features, device_x.data(), device_y.data());
        cuda::geglu_backward(at.on, rows, features, device_x.data(), device_dy.data(), device_dx.data());
        const double scale = greatest(x) * greatest(x);
        check_result(at, device_y, y, few_steps, scale);
        check_result(at, device_dx, dx, few_steps, scale * greatest(dy));
    }
}

TEST_CASE_TEMPLATE("cuda operations that move scalars move each to its place", T, __nv_bfloat16, __half, float) {
    source draw{64};
    reference plain;
    const device at;
    for (const auto& [rows, n, x_stride, y_stride] :
         {std::tuple{5, 16, 16, 40}, {7, 8, 24, 8}, {4, 3, 5, 3}, {6, 24, 27, 32}, {1, 1, 1, 1}, {9, 64, 64, 72}}) {
        CAPTURE(n);
        const doubles x = draw.normal<T>(std::int64_t{rows} * x_stride);
        doubles y = draw.normal<T>(std::int64_t{rows} * y_stride);
        const tensor<T> device_x(x);
        const tensor<T> device_y(y);
        plain.copy_rows(rows, n, x.data(), x_stride, y.data(), y_stride);
        cuda::copy_rows(at.on, rows, n, device_x.data(), x_stride, device_y.data(), y_stride);
        CHECK(device_y.download(at.queue) == y);
    }
    for (const patch_shape& s :
         {patch_shape{4, 3, 2, 4, 2}, {2, 2, 2, 3, 0}, {3, 5, 1, 16, 1}, {1, 2, 4, 1, 3}, {2, 3, 2, 8, 0}}) {
        CAPTURE(s.patch);
        CAPTURE(s.channels);
        const int batch = draw.between(1, 3);
        const std::int64_t tokens = std::int64_t{batch} * s.tokens() * s.features();
        const doubles x = draw.normal<T>(tokens);
        doubles image(static_cast<std::size_t>(batch * s.image_elements()));
        doubles back(x.size());
        const tensor<T> device_x(x);
        const tensor<T> device_image(batch * s.image_elements());
        const tensor<T> device_back(tokens);
        plain.patches_to_image(s, batch, x.data(), image.data());
        plain.image_to_patches(s, batch, image.data(), back.data());
        cuda::patches_to_image(at.on, s, batch, device_x.data(), device_image.data());
        cuda::image_to_patches(at.on, s, batch, device_image.data(), device_back.data());
        CHECK(device_image.download(at.queue) == image);
        CHECK(device_back.download(at.queue) == back);
        CHECK(device_image.intact(at.queue));
        CHECK(device_back.intact(at.queue));
    }
}

TEST_CASE_TEMPLATE("cuda upsampling and its transpose equal the plain ones", T, __nv_bfloat16, __half, float) {
    source draw{65};
    reference plain;
    const device at;
    for (const auto& [height, width, channels] : {std::tuple{3, 5, 16}, {4, 4, 64}, {2, 3, 3}, {1, 1, 1}, {7, 2, 40}}) {
        CAPTURE(channels);
        const int batch = draw.between(1, 3);
        const std::int64_t n = std::int64_t{batch} * height * width * channels;
        const doubles x = draw.normal<T>(n);
        const doubles dy = draw.normal<T>(4 * n);
        doubles y(dy.size());
        doubles dx(x.size());
        plain.upsample_nearest(batch, height, width, channels, x.data(), y.data());
        plain.upsample_nearest_backward(batch, height, width, channels, dy.data(), dx.data());
        const tensor<T> device_x(x);
        const tensor<T> device_dy(dy);
        const tensor<T> device_y(4 * n);
        const tensor<T> device_dx(n);
        cuda::upsample_nearest(at.on, batch, height, width, channels, device_x.data(), device_y.data());
        cuda::upsample_nearest_backward(at.on, batch, height, width, channels, device_dy.data(), device_dx.data());
        CHECK(device_y.download(at.queue) == y);
        check_result(at, device_dx, dx, few_steps, 4.0 * greatest(dy));
        CHECK(device_y.intact(at.queue));
    }
}

TEST_CASE_TEMPLATE("cuda sums over pixels and rows equal the plain ones in double", T, __nv_bfloat16, __half, float) {
    source draw{66};
    reference plain;
    for (const auto& [pixels, channels] :
         {std::pair{16, 64}, {1, 8}, {900, 24}, {33, 3}, {1000, 1}, {70, 1280}, {300, 37}}) {
        CAPTURE(pixels);
        CAPTURE(channels);
        const int batch = draw.between(1, 3);
        const std::int64_t rows = std::int64_t{batch} * pixels;
        const device at(std::max(cuda::sum_pixels_scratch_bytes(batch, pixels, channels),
                                 cuda::add_bias_gradient_scratch_bytes(rows, channels)),
                        draw.between(1, 2) == 1 ? 3 : 132);
        doubles y = draw.normal<T>(rows * channels);
        const doubles added = draw.normal<T>(std::int64_t{batch} * channels);
        const tensor<T> device_y(y);
        const tensor<T> device_added(added);
        const tensor<T> device_t(std::int64_t{batch} * channels);
        doubles t(added.size());
        const double spread = std::sqrt(static_cast<double>(rows));
        cuda::sum_pixels(at.on, batch, pixels, channels, device_y.data(), device_t.data());
        plain.sum_pixels(batch, pixels, channels, y.data(), t.data());
        CHECK(worst<T>(device_t.download(at.queue), t, few_steps, 3.0 * spread) < 1.0);
        CHECK(device_t.intact(at.queue));

        doubles bias = draw.normal<float>(channels);
        const tensor<float> device_bias(bias);
        for (std::int64_t r = 0; r != rows; ++r) { plain.add(channels, y.data() + r * channels, bias.data()); }
        cuda::add_bias_gradient(at.on, rows, channels, device_y.data(), device_bias.data());
        CHECK(worst<float>(device_bias.download(at.queue), bias, few_steps, 3.0 * spread) < 1.0);
        CHECK(device_bias.intact(at.queue));

        plain.add_per_sample(batch, pixels, channels, added.data(), y.data());
        cuda::add_per_sample(at.on, batch, pixels, channels, device_added.data(), device_y.data());
        check_result(at, device_y, y, 0.0, 1.0);
    }
}

TEST_CASE("few threads that sum columns have none, and blocks of all sums are on a device at once") {
    for (const int channels : {320, 640, 960, 1280, 1920, 2560}) {
        for (const int width : {4, 8}) {
            CAPTURE(channels);
            CAPTURE(width);
            const auto t = cuda::tile_columns(1, 1 << 16, channels, width, 132);
            CHECK(10 * (channels / width) * t.rows >= 9 * t.slabs * t.threads());
            CHECK(t.slabs * t.splits <= cuda::column_resident_blocks * 132);
        }
    }
}

TEST_CASE("cuda sums give the same bits twice") {
    source draw{67};
    const std::int64_t rows = 5000;
    const tensor<float> x(draw.normal<float>(rows * 24));
    doubles first;
    for (int round = 0; round != 2; ++round) {
        const device at(cuda::add_bias_gradient_scratch_bytes(rows, 24), 132);
        const tensor<float> sums(doubles(24, 0.0));
        cuda::add_bias_gradient(at.on, rows, 24, x.data(), sums.data());
        if (round == 0) { first = sums.download(at.queue); }
        CHECK(sums.download(at.queue) == first);
    }
}

TEST_CASE_TEMPLATE("cuda sinusoids equal the plain ones in double", T, __nv_bfloat16, __half, float) {
    reference plain;
    const device at;
    const doubles timesteps{0.0, 1.0, 37.0, 500.0, 999.0, 123456.0};
    const tensor<float> device_timesteps(timesteps);
    for (const int features : {2, 32, 320}) {
        for (const bool flip : {false, true}) {
            const double shift = features == 32 ? 1.0 : 0.0;
            doubles e(timesteps.size() * static_cast<std::size_t>(features));
            const tensor<T> device_e(static_cast<std::int64_t>(e.size()));
            plain.sinusoid(6, features, flip, shift, timesteps.data(), e.data());
            cuda::sinusoid(at.on, 6, features, flip, shift, device_timesteps.data(), device_e.data());
            check_result(at, device_e, e, few_steps, 1.0);
        }
    }
}

TEST_CASE("division by a number that is known when a kernel starts") {
    source draw{68};
    const auto check = [](std::uint32_t by, std::uint32_t n) {
        const cuda::divided got = divide(n, cuda::divider(by));
        CHECK(got.quotient == n / by);
        CHECK(got.remainder == n % by);
    };
    const std::uint32_t most = 0x7fffffffu;
    for (std::uint32_t by = 1; by != 300; ++by) {
        for (const std::uint32_t n : {0u, 1u, by - 1, by, by + 1, most, most - 1, most / by * by, most / by * by - 1}) {
            check(by, n);
        }
    }
    for (int i = 0; i != 20000; ++i) {
        const auto by = static_cast<std::uint32_t>(draw.between(1, 0x7fffffff)) >> draw.between(0, 30);
        const auto n = static_cast<std::uint32_t>(draw.between(0, 0x7fffffff)) >> draw.between(0, 12);
        check(std::max(by, 1u), n);
        check(std::max(by, 1u), n / std::max(by, 1u) * std::max(by, 1u));
    }
}

TEST_CASE("every item has a thread, and a small device gets no more blocks than it needs") {
    source draw{69};
    for (int i = 0; i != 2000; ++i) {
        const std::int64_t n = draw.between(1, 1 << 30) >> draw.between(0, 29);
        const int in_flight = draw.between(1, 4);
        const int multiprocessors = draw.between(1, 150);
        const std::int64_t blocks = cuda::map_items_blocks(std::max<std::int64_t>(n, 1), in_flight, multiprocessors);
        CHECK(blocks * 256 * in_flight >= n);
        CHECK(blocks <= (std::max<std::int64_t>(n, 1) + 255) / 256);
    }
}

TEST_CASE("cuda operations over scalars refuse sizes that are none") {
    const device at;
    float* const none = nullptr;
    CHECK_THROWS_AS(cuda::silu(at.on, -1, none, none), pulse::input_error);
    CHECK_THROWS_AS(cuda::geglu(at.on, 3, 0, none, none), pulse::input_error);
    CHECK_THROWS_AS(cuda::upsample_nearest(at.on, 1, 0, 3, 3, none, none), pulse::input_error);
    CHECK_THROWS_AS(cuda::sinusoid(at.on, 1, 1, false, 0.0, none, none), pulse::input_error);
    CHECK_THROWS_AS(cuda::sum_pixels(at.on, 1, 1, 0, none, none), pulse::input_error);
}
