#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include <support/operations/functions.hpp>
#include <support/operations/movement.hpp>

#include <device_side.hpp>

namespace cuda = pulse::cuda;
using pulse::into;
using namespace pulse::test;

namespace {

struct device {
    explicit device(std::size_t scratch_bytes = 0, int multiprocessors = 3) : queue{scratch_bytes}, on{queue.on()} {
        on.multiprocessors = multiprocessors;
    }
    device_queue queue;
    cuda::queue on;
};

} // namespace

TEST_CASE_TEMPLATE("cuda silu, gelu and gelu_tanh and their gradients equal the plain ones in double", T, __nv_bfloat16,
                   __half, float) {
    kernel_trial<T> t{61};
    for (const int offset : {0, 1}) {
        t.offset = offset;
        check_activations(t, {1, 7, 64, 5003});
    }
}

TEST_CASE("cuda activations keep their limits") {
    const doubles x{-1e4, -200.0, -90.0, -30.0, -10.0, -6.0, 0.0, 6.0, 30.0, 90.0, 200.0, 1e4};
    const auto n = static_cast<std::int64_t>(x.size());
    const device at;
    const tensor<float> device_x(x);
    const tensor<float> ones(doubles(x.size(), 1.0));
    pulse::reference::backend<double> plain;
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
        // elementwise: y is off by 6e-7 x; the slope at 6 by 5 times the sigmoid's error, which is at most 2^-22
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
    kernel_trial<T> t{62};
    for (const int offset : {0, 3}) {
        t.offset = offset;
        for (const std::int64_t n : {0, 1, 9, 512, 12345}) { check_simple_functions(t, n); }
    }
}

TEST_CASE_TEMPLATE("cuda geglu and its gradient equal the plain ones in double", T, __nv_bfloat16, __half, float) {
    kernel_trial<T> t{63};
    check_geglus(t);
}

TEST_CASE_TEMPLATE("cuda operations that move scalars move each to its place", T, __nv_bfloat16, __half, float) {
    kernel_trial<T> t{64};
    check_copied_rows(t);
    check_drawn_patches(t, 0);
}

TEST_CASE_TEMPLATE("cuda upsampling and its transpose equal the plain ones", T, __nv_bfloat16, __half, float) {
    kernel_trial<T> t{65};
    for (const auto& [height, width, channels] : {std::tuple{3, 5, 16}, {4, 4, 64}, {2, 3, 3}, {1, 1, 1}, {7, 2, 40}}) {
        check_upsampling(t, t.draw.between(1, 3), height, width, channels);
    }
}

TEST_CASE_TEMPLATE("cuda sums over pixels and rows equal the plain ones in double", T, __nv_bfloat16, __half, float) {
    kernel_trial<T> t{66};
    for (const auto& [pixels, channels] :
         {std::pair{16, 64}, {1, 8}, {900, 24}, {33, 3}, {1000, 1}, {70, 1280}, {300, 37}}) {
        t.side.on.multiprocessors = t.draw.between(1, 2) == 1 ? 3 : 132;
        check_pixel_sums(t, t.draw.between(1, 3), pixels, channels);
    }
}

TEST_CASE("at most a tenth of the threads of a column sum are idle, and all its blocks are resident at once") {
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
    kernel_trial<T> t{67};
    check_sinusoids(t);
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
