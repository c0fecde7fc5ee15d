#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <pulse/cuda/kernels/group_norm_backward.cuh>
#include <pulse/reference/backend.hpp>

#include <compare.hpp>

namespace cuda = pulse::cuda;
using pulse::group_norm_shape;
using pulse::into;
using namespace pulse::test;
using doubles = std::vector<double>;

namespace {

struct variant {
    int multiprocessors{3};
    int offset{0}; ///< of every tensor behind an aligned address
    double shift{0.3};
};

/// Forward and backward against the plain loops in double; whether the device kept slabs in shared memory, forward.
template <class T>
bool check_group_norm(source& draw, const group_norm_shape& s, int batch, const variant& v = {}) {
    CAPTURE(s.channels);
    CAPTURE(s.second_channels);
    CAPTURE(s.groups);
    CAPTURE(s.pixels);
    CAPTURE(s.silu);
    CAPTURE(batch);
    CAPTURE(v.multiprocessors);
    CAPTURE(v.offset);
    CAPTURE(v.shift);
    const std::int64_t pixels = std::int64_t{batch} * s.pixels;
    const std::int64_t all = s.all_channels();
    const doubles xa = draw.normal<T>(pixels * s.channels, 1.5, v.shift);
    const doubles xb = draw.normal<T>(pixels * s.second_channels, 0.5, v.shift);
    const doubles gamma = draw.normal<T>(all);
    const doubles beta = draw.normal<T>(all);
    const doubles dy = draw.normal<T>(pixels * all);
    const tensor<T> device_xa(xa, v.offset);
    const tensor<T> device_xb(xb, s.second_channels != 0 ? v.offset : 0);
    const tensor<T> device_gamma(gamma, v.offset);
    const tensor<T> device_beta(beta, v.offset);
    const tensor<T> device_dy(dy, v.offset);
    const device_queue queue(
        std::max(cuda::group_norm_scratch_bytes(s, batch), cuda::group_norm_backward_scratch_bytes(s, batch)));
    cuda::queue on = queue.on();
    on.multiprocessors = v.multiprocessors;

    pulse::reference::backend<double> plain;
    doubles y(static_cast<std::size_t>(pixels * all));
    doubles statistics(static_cast<std::size_t>(batch) * s.groups * 2);
    plain.group_norm(s, batch, xa.data(), xb.data(), gamma.data(), beta.data(), y.data(), statistics.data());
    const tensor<T> device_y(pixels * all, v.offset);
    const tensor<float> device_statistics(static_cast<std::int64_t>(statistics.size()));
    cuda::group_norm(on, s, batch, device_xa.data(), device_xb.data(), device_gamma.data(), device_beta.data(),
                     device_y.data(), device_statistics.data());
    // What rounding the mean and the differences from it costs, in standard deviations.
    const double relative = 12.0 * (1.0 + std::abs(v.shift)) * float_epsilon;
    CHECK(worst<float>(device_statistics.download(queue), statistics, relative) < 1.0);
    CHECK(worst<T>(device_y.download(queue), y, relative) < 1.0);
    CHECK(device_y.intact(queue));
    CHECK(device_statistics.intact(queue));

    for (const into how : {into::write, into::add}) {
        const doubles before = draw.normal<T>(pixels * s.channels);
        doubles dxa = before;
        doubles dxb(xb.size());
        const doubles affine = draw.normal<float>(2 * all);
        doubles dgamma(affine.begin(), affine.begin() + all);
        doubles dbeta(affine.begin() + all, affine.end());
        const tensor<T> device_dxa =
            how == into::add ? tensor<T>(before, v.offset) : tensor<T>(pixels * s.channels, v.offset);
        const tensor<T> device_dxb(pixels * s.second_channels, s.second_channels != 0 ? v.offset : 0);
        const tensor<float> device_dgamma(dgamma);
        const tensor<float> device_dbeta(dbeta);
        plain.group_norm_backward(s, batch, xa.data(), xb.data(), gamma.data(), beta.data(), statistics.data(),
                                  dy.data(), dxa.data(), dxb.data(), dgamma.data(), dbeta.data(), how);
        cuda::group_norm_backward(on, s, batch, device_xa.data(), device_xb.data(), device_gamma.data(),
                                  device_beta.data(), device_statistics.data(), device_dy.data(), device_dxa.data(),
                                  device_dxb.data(), device_dgamma.data(), device_dbeta.data(), how);
        CHECK(worst<T>(device_dxa.download(queue), dxa, 4.0 * relative) < 1.0);
        CHECK(worst<T>(device_dxb.download(queue), dxb, 4.0 * relative) < 1.0);
        const double terms = 3.0 * std::sqrt(static_cast<double>(pixels));
        CHECK(worst<float>(device_dgamma.download(queue), dgamma, relative, terms) < 1.0);
        CHECK(worst<float>(device_dbeta.download(queue), dbeta, relative, terms) < 1.0);
        CHECK(device_dxa.intact(queue));
        CHECK(device_dxb.intact(queue));
        CHECK(device_dgamma.intact(queue));
        CHECK(device_dbeta.intact(queue));
    }
    const int width = v.offset == 0 ? cuda::group_norm_width<T>(s) : 1;
    return cuda::tile_group_norm(s, batch, width, sizeof(T), 1, v.multiprocessors).resident;
}

} // namespace

TEST_CASE_TEMPLATE("cuda group norm and its gradients equal the plain loops in double", T, __nv_bfloat16, __half,
                   float) {
    source draw{41};
    const std::vector<group_norm_shape> shapes{
        {32, 0, 8, 64},  {80, 0, 8, 49}, {17, 0, 1, 30},  {7, 0, 7, 65},  {1, 0, 1, 50},   {3, 0, 3, 20},
        {64, 32, 8, 36}, {24, 8, 4, 49}, {20, 12, 2, 33}, {5, 10, 3, 20}, {8, 16, 3, 128}, {40, 40, 8, 30},
    };
    for (group_norm_shape s : shapes) {
        s.silu = draw.between(0, 1) == 1;
        check_group_norm<T>(draw, s, draw.between(1, 3));
    }
}

TEST_CASE_TEMPLATE("cuda group norm in two passes equals the plain loops in double", T, __nv_bfloat16, float) {
    source draw{42};
    CHECK_FALSE(check_group_norm<T>(draw, {40, 24, 2, 1000, 1e-5, true}, 1, {.multiprocessors = 60}));
    CHECK_FALSE(check_group_norm<T>(draw, {24, 0, 3, 1100}, 1, {.multiprocessors = 132}));
    // groups so wide and odd that packs of eight of them do not fit: single scalars
    check_group_norm<T>(draw, {8 * 601, 0, 8, 2}, 1);
    // one group wider than a block, in several walks
    CHECK_FALSE(check_group_norm<T>(draw, {2600, 2, 1, 9, 1e-5, true}, 2));
    CHECK_FALSE(check_group_norm<T>(draw, {2100, 500, 1, 11}, 1, {.multiprocessors = 132, .offset = 1}));
}

TEST_CASE_TEMPLATE("cuda group norm takes tensors that start anywhere", T, __nv_bfloat16, __half, float) {
    source draw{43};
    check_group_norm<T>(draw, {32, 16, 4, 40, 1e-5, true}, 2, {.offset = 1});
    check_group_norm<T>(draw, {16, 0, 4, 700, 1e-6, false}, 1, {.multiprocessors = 64, .offset = 3});
}

TEST_CASE_TEMPLATE("cuda group norm keeps its digits far from zero", T, __half, float) {
    source draw{44};
    for (const double shift : {-30.0, 1000.0}) {
        check_group_norm<T>(draw, {32, 16, 4, 100, 1e-5, true}, 2, {.shift = shift});
        check_group_norm<T>(draw, {16, 0, 2, 2000, 1e-6, false}, 1, {.multiprocessors = 132, .shift = shift});
    }
}

TEST_CASE_TEMPLATE("random cuda group norms whose groups straddle the sources", T, __nv_bfloat16, float) {
    source draw{45};
    for (int i = 0; i != 15; ++i) {
        group_norm_shape s;
        s.groups = draw.between(1, 6);
        const int all = s.groups * draw.between(2, 12);
        s.second_channels = draw.between(0, all - 1);
        s.channels = all - s.second_channels;
        s.pixels = draw.between(1, 150);
        s.silu = draw.between(0, 1) == 1;
        check_group_norm<T>(draw, s, draw.between(1, 4), {.multiprocessors = draw.between(1, 200)});
    }
}

TEST_CASE("cuda group norm gives the same bits twice") {
    source draw{46};
    for (const int pixels : {60, 1500}) {
        const group_norm_shape s{64, 16, 8, pixels, 1e-5, true};
        const tensor<float> xa(draw.normal<float>(64 * pixels));
        const tensor<float> xb(draw.normal<float>(16 * pixels));
        const tensor<float> affine(draw.normal<float>(80));
        const tensor<float> dy(draw.normal<float>(80 * pixels));
        std::vector<doubles> made;
        for (int round = 0; round != 2; ++round) {
            const device_queue queue(cuda::group_norm_backward_scratch_bytes(s, 1));
            cuda::queue on = queue.on();
            on.multiprocessors = 132;
            const tensor<float> y(80 * pixels);
            const tensor<float> statistics(16);
            const tensor<float> dxa(64 * pixels);
            const tensor<float> dxb(16 * pixels);
            const tensor<float> dgamma(doubles(80, 0.0));
            const tensor<float> dbeta(doubles(80, 0.0));
            cuda::group_norm(on, s, 1, xa.data(), xb.data(), affine.data(), affine.data(), y.data(), statistics.data());
            cuda::group_norm_backward(on, s, 1, xa.data(), xb.data(), affine.data(), affine.data(), statistics.data(),
                                      dy.data(), dxa.data(), dxb.data(), dgamma.data(), dbeta.data(), into::write);
            for (const auto* t : {&y, &statistics, &dxa, &dxb, &dgamma, &dbeta}) { made.push_back(t->download(queue)); }
        }
        for (std::size_t i = 0; i != 6; ++i) { CHECK(made[i] == made[i + 6]); }
    }
}

TEST_CASE("layouts of group norm cover every pixel and group once, within the device's limits") {
    source draw{47};
    for (int i = 0; i != 3000; ++i) {
        group_norm_shape s;
        s.groups = draw.between(1, 40);
        const int size = draw.between(1, i % 50 == 0 ? 3000 : 90);
        s.second_channels = i % 3 == 0 ? draw.between(0, s.groups * size - 1) : 0;
        s.channels = s.groups * size - s.second_channels;
        s.pixels = draw.between(1, 1) << draw.between(0, 14);
        const int batch = draw.between(1, 20);
        const int bytes = draw.between(0, 1) == 0 ? 2 : 4;
        const bool packs = s.channels % (16 / bytes) == 0 && s.second_channels % (16 / bytes) == 0;
        const int tensors = draw.between(1, 2);
        const auto t = cuda::tile_group_norm(s, batch, packs ? 16 / bytes : 1, bytes, tensors, draw.between(1, 200));
        CAPTURE(s.channels);
        CAPTURE(s.second_channels);
        CAPTURE(s.groups);
        CAPTURE(s.pixels);
        CHECK(t.slabs * t.slab_groups >= s.groups);
        CHECK((t.slabs - 1) * t.slab_groups < s.groups);
        CHECK((t.slabs == 1 || t.slab_channels(s) % t.width == 0));
        CHECK(t.splits * t.chunk >= s.pixels);
        CHECK((t.splits - 1) * t.chunk < s.pixels);
        CHECK(t.splits <= cuda::group_norm_most_splits(s, batch));
        CHECK(t.walked_channels() >= t.slab_channels(s));
        CHECK(t.threads() <= (t.resident ? 512 : 256));
        CHECK(t.shared_bytes() <= (t.resident ? cuda::most_resident_bytes : std::size_t{48} * 1024));
        if (t.resident) {
            CHECK(t.splits == 1);
            CHECK(t.passes == 1);
            CHECK(t.kept_bytes >= static_cast<std::size_t>(tensors) * s.pixels * t.slab_channels(s) * bytes);
        }
    }
}

TEST_CASE("layouts of group norm fill a device of 132 multiprocessors where the maps are large enough") {
    // Stable Diffusion's maps: channels, pixels
    for (const auto& [channels, pixels] :
         {std::pair{320, 4096}, {640, 1024}, {1280, 256}, {960, 4096}, {320, 16384}, {640, 4096}}) {
        for (const int batch : {1, 4, 16}) {
            const group_norm_shape s{channels, 0, 32, pixels, 1e-5, true};
            const auto t = cuda::tile_group_norm(s, batch, 8, 2, 1, 132);
            CAPTURE(channels);
            CAPTURE(pixels);
            CAPTURE(batch);
            CHECK(t.slab_channels(s) * 2 % 32 == 0); // whole sectors
            if (!t.resident) { CHECK(t.blocks(batch) >= (batch == 1 && channels * pixels < (1 << 21) ? 66 : 198)); }
            // what stays on chip is small enough for one wave, or many
            if (t.resident && t.kept_bytes > 48 * 1024) { CHECK(t.blocks(batch) * 4 >= 132); }
        }
    }
}

TEST_CASE("cuda group norm refuses shapes that are none") {
    const device_queue queue;
    const auto run = [&](const group_norm_shape& s, int batch) {
        cuda::group_norm<float>(queue.on(), s, batch, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    };
    CHECK_THROWS_WITH_AS(run({10, 2, 5, 4}, 1), "group_norm: 5 groups do not divide 12 channels", pulse::input_error);
    CHECK_THROWS_AS(run({8, 0, 2, 0}, 1), pulse::input_error);
    CHECK_THROWS_AS(run({8, 0, 2, 4}, 0), pulse::input_error);
    CHECK_THROWS_AS(run({8, 0, 0, 4}, 1), pulse::input_error);
    CHECK_THROWS_AS(run({5000, 0, 1, 4}, 1), pulse::input_error);
}
