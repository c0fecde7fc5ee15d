#include <doctest/doctest.h>

#include <vector>

#include <pulse/cuda/kernels/group_norm_backward.cuh>

#include <support/operations/norms.hpp>

#include <device_side.hpp>

namespace cuda = pulse::cuda;
using pulse::group_norm_shape;
using pulse::into;
using namespace pulse::test;

namespace {

/// Whether the forward pass keeps slabs in shared memory.
template <class T>
bool check_residence(kernel_trial<T>& t, const group_norm_shape& s, int batch, int multiprocessors = 3,
                     int offset = 0) {
    t.side.on.multiprocessors = multiprocessors;
    t.offset = offset;
    check_group_norm(t, s, batch);
    const int width = offset == 0 ? cuda::group_norm_width<T>(s) : 1;
    return cuda::tile_group_norm(s, batch, width, sizeof(T), 1, multiprocessors).resident;
}

} // namespace

TEST_CASE_TEMPLATE("cuda group norm and its gradients equal the plain loops in double", T, __nv_bfloat16, __half,
                   float) {
    kernel_trial<T> t{41};
    check_group_norms(t);
}

TEST_CASE_TEMPLATE("cuda group norm in two passes equals the plain loops in double", T, __nv_bfloat16, float) {
    kernel_trial<T> t{42};
    CHECK_FALSE(check_residence(t, {40, 24, 2, 1000, 1e-5, true}, 1, 60));
    CHECK_FALSE(check_residence(t, {24, 0, 3, 1100}, 1, 132));
    // groups so wide and odd that packs of eight do not fit: single scalars
    check_residence(t, {8 * 601, 0, 8, 2}, 1);
    // one group wider than a block, in several iterations
    CHECK_FALSE(check_residence(t, {2600, 2, 1, 9, 1e-5, true}, 2));
    CHECK_FALSE(check_residence(t, {2100, 500, 1, 11}, 1, 132, 1));
}

TEST_CASE_TEMPLATE("cuda group norm takes tensors that start anywhere", T, __nv_bfloat16, __half, float) {
    kernel_trial<T> t{43};
    check_residence(t, {32, 16, 4, 40, 1e-5, true}, 2, 3, 1);
    check_residence(t, {16, 0, 4, 700, 1e-6, false}, 1, 64, 3);
}

TEST_CASE_TEMPLATE("cuda group norm keeps its digits far from zero", T, __half, float) {
    kernel_trial<T> t{44};
    for (const double shift : {-30.0, 1000.0}) {
        t.side.on.multiprocessors = 3;
        check_group_norm(t, {32, 16, 4, 100, 1e-5, true}, 2, shift);
        t.side.on.multiprocessors = 132;
        check_group_norm(t, {16, 0, 2, 2000, 1e-6, false}, 1, shift);
    }
}

TEST_CASE_TEMPLATE("random cuda group norms whose groups straddle the sources", T, __nv_bfloat16, float) {
    kernel_trial<T> t{45};
    check_drawn_group_norms(t, 15, 1, [&] { t.side.on.multiprocessors = t.draw.between(1, 200); });
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
    // Stable Diffusion's feature maps: channels, pixels
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
            // slabs on chip are small enough for one wave, or for many
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
