#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include <pulse/cuda/kernels/adaptive_norm.cuh>
#include <pulse/cuda/kernels/embedding.cuh>
#include <pulse/cuda/kernels/pointwise.cuh>
#include <pulse/cuda/kernels/rotary.cuh>
#include <pulse/reference/backend.hpp>

#include <compare.hpp>

namespace cuda = pulse::cuda;
using pulse::adaptive_norm_shape;
using pulse::embedding_shape;
using pulse::into;
using pulse::rotary_shape;
using namespace pulse::test;
using doubles = std::vector<double>;
using reference = pulse::reference::backend<double>;

namespace {

/// Which of the tensors that may be null are there.
struct parts {
    bool affine;
    bool scale;
};

template <class T>
void check_adaptive_norm(source& draw, const adaptive_norm_shape& s, int batch, parts has, int multiprocessors) {
    CAPTURE(s.features);
    CAPTURE(s.tokens);
    CAPTURE(batch);
    CAPTURE(has.affine);
    CAPTURE(has.scale);
    const auto some = [](bool there, auto* data) { return there ? data : nullptr; };
    const std::int64_t rows = std::int64_t{batch} * s.tokens;
    const std::int64_t n = rows * s.features;
    const doubles x = draw.normal<T>(n, 1.5, 0.3);
    const doubles dy = draw.normal<T>(n);
    const doubles gamma = draw.normal<T>(s.features);
    const doubles beta = draw.normal<T>(s.features);
    const doubles scale = draw.normal<T>(batch * s.stride, 0.5);
    const doubles shift = draw.normal<T>(batch * s.stride);
    const tensor<T> device_x(x);
    const tensor<T> device_dy(dy);
    const tensor<T> device_gamma(gamma);
    const tensor<T> device_beta(beta);
    const tensor<T> device_scale(scale);
    const tensor<T> device_shift(shift);
    const device_queue queue(cuda::adaptive_norm_backward_scratch_bytes(s, batch));
    cuda::queue on = queue.on();
    on.multiprocessors = multiprocessors;

    reference plain;
    doubles y(x.size());
    doubles statistics(static_cast<std::size_t>(2 * rows));
    plain.adaptive_norm(s, batch, x.data(), some(has.affine, gamma.data()), some(has.affine, beta.data()),
                        some(has.scale, scale.data()), shift.data(), y.data(), statistics.data());
    const tensor<T> device_y(n);
    const tensor<float> device_statistics(2 * rows);
    cuda::adaptive_norm<T>(on, s, batch, device_x.data(), some(has.affine, device_gamma.data()),
                           some(has.affine, device_beta.data()), some(has.scale, device_scale.data()),
                           device_shift.data(), device_y.data(), device_statistics.data());
    const double relative = 20.0 * float_epsilon;
    CHECK(worst<float>(device_statistics.download(queue), statistics, relative) < 1.0);
    CHECK(worst<T>(device_y.download(queue), y, relative) < 1.0);
    CHECK(device_y.intact(queue));

    for (const into how : {into::write, into::add}) {
        const doubles before = draw.normal<T>(n);
        doubles dx = before;
        doubles dgamma = draw.normal<float>(s.features);
        doubles dbeta = draw.normal<float>(s.features);
        // what lies between the samples' gradients stays
        doubles dscale = draw.normal<T>(batch * s.stride);
        doubles dshift = draw.normal<T>(batch * s.stride);
        const tensor<T> device_dx = how == into::add ? tensor<T>(before) : tensor<T>(n);
        const tensor<float> device_dgamma(dgamma);
        const tensor<float> device_dbeta(dbeta);
        const tensor<T> device_dscale(dscale);
        const tensor<T> device_dshift(dshift);
        plain.adaptive_norm_backward(s, batch, x.data(), some(has.affine, gamma.data()), some(has.affine, beta.data()),
                                     some(has.scale, scale.data()), statistics.data(), dy.data(), dx.data(),
                                     some(has.affine, dgamma.data()), some(has.affine, dbeta.data()),
                                     some(has.scale, dscale.data()), dshift.data(), how);
        cuda::adaptive_norm_backward<T>(on, s, batch, device_x.data(), some(has.affine, device_gamma.data()),
                                        some(has.affine, device_beta.data()), some(has.scale, device_scale.data()),
                                        device_statistics.data(), device_dy.data(), device_dx.data(),
                                        some(has.affine, device_dgamma.data()), some(has.affine, device_dbeta.data()),
                                        some(has.scale, device_dscale.data()), device_dshift.data(), how);
        const double terms = 6.0 * std::sqrt(static_cast<double>(rows));
        CHECK(worst<T>(device_dx.download(queue), dx, 4.0 * relative) < 1.0);
        CHECK(worst<float>(device_dgamma.download(queue), dgamma, relative, terms) < 1.0);
        CHECK(worst<float>(device_dbeta.download(queue), dbeta, relative, terms) < 1.0);
        CHECK(worst<T>(device_dscale.download(queue), dscale, relative, terms) < 1.0);
        CHECK(worst<T>(device_dshift.download(queue), dshift, relative, terms) < 1.0);
        CHECK(device_dx.intact(queue));
    }
}

} // namespace

TEST_CASE_TEMPLATE("cuda adaptive norm and its gradients equal the plain loops in double", T, __nv_bfloat16, __half,
                   float) {
    source draw{71};
    for (const bool affine : {false, true}) {
        for (const bool scale : {false, true}) {
            const parts has{affine, scale};
            check_adaptive_norm<T>(draw, {64, 7, 64}, 2, has, 3);
            check_adaptive_norm<T>(draw, {37, 5, 111}, 3, has, 3);
        }
    }
    check_adaptive_norm<T>(draw, {1408, 3, 6 * 1408}, 2, {true, true}, 132);
    check_adaptive_norm<T>(draw, {48, 300, 96}, 2, {true, true}, 132);
    check_adaptive_norm<T>(draw, {3200, 2, 3200}, 1, {false, true}, 132);
}

TEST_CASE_TEMPLATE("cuda rotary embedding turns pairs as the plain loops do, and back", T, __nv_bfloat16, __half,
                   float) {
    source draw{72};
    reference plain;
    for (const auto& [s, batch] : {std::pair{rotary_shape{3, 4, 2, 88, 32.0}, 2},
                                   {rotary_shape{2, 5, 3, 12, 16.0}, 3},
                                   {rotary_shape{1, 1, 1, 4, 1.0}, 1},
                                   {rotary_shape{16, 16, 5, 16, 32.0}, 1}}) {
        CAPTURE(s.head_size);
        const device_queue queue;
        const doubles x = draw.normal<T>(std::int64_t{batch} * s.tokens() * s.width());
        doubles y(x.size());
        doubles dx(x.size());
        plain.rotary(s, batch, x.data(), y.data());
        plain.rotary_backward(s, batch, x.data(), dx.data());
        const tensor<T> device_x(x);
        const tensor<T> device_y(static_cast<std::int64_t>(x.size()));
        cuda::rotary(queue.on(), s, batch, device_x.data(), device_y.data());
        CHECK(worst<T>(device_y.download(queue), y, 6.0 * float_epsilon, 4.0) < 1.0);
        CHECK(device_y.intact(queue));
        // in place
        cuda::rotary_backward(queue.on(), s, batch, device_x.data(), device_x.data());
        CHECK(worst<T>(device_x.download(queue), dx, 6.0 * float_epsilon, 4.0) < 1.0);
    }
}

TEST_CASE_TEMPLATE("cuda embeddings and their gradients equal the plain loops", T, __nv_bfloat16, __half, float) {
    source draw{73};
    reference plain;
    for (const auto& [s, rows] :
         {std::pair{embedding_shape{7, 64}, 12}, {embedding_shape{100, 5}, 30}, {embedding_shape{1, 1}, 3}}) {
        CAPTURE(s.features);
        const device_queue queue;
        doubles indices;
        for (int r = 0; r != rows; ++r) { indices.push_back(draw.between(0, s.entries - 1)); }
        const doubles table = draw.normal<T>(std::int64_t{s.entries} * s.features);
        const doubles dy = draw.normal<T>(std::int64_t{rows} * s.features);
        doubles y(dy.size());
        doubles dtable = draw.normal<float>(std::int64_t{s.entries} * s.features);
        const tensor<float> device_indices(indices);
        const tensor<T> device_table(table);
        const tensor<T> device_dy(dy);
        const tensor<T> device_y(static_cast<std::int64_t>(y.size()));
        const tensor<float> device_dtable(dtable);
        plain.embedding(s, rows, indices.data(), table.data(), y.data());
        plain.embedding_backward_weight(s, rows, indices.data(), dy.data(), dtable.data());
        cuda::embedding(queue.on(), s, rows, device_indices.data(), device_table.data(), device_y.data());
        cuda::embedding_backward_weight(queue.on(), s, rows, device_indices.data(), device_dy.data(),
                                        device_dtable.data());
        CHECK(device_y.download(queue) == y);
        CHECK(worst<float>(device_dtable.download(queue), dtable, rows * float_epsilon) < 1.0);
        CHECK(device_y.intact(queue));
        CHECK(device_dtable.intact(queue));
    }
}

TEST_CASE_TEMPLATE("cuda padding is replaced, and its gradient goes to what replaced it", T, __nv_bfloat16, __half,
                   float) {
    source draw{74};
    reference plain;
    for (const auto& [batch, tokens, features] : {std::tuple{3, 5, 16}, {2, 7, 3}, {1, 1, 1}, {4, 77, 24}}) {
        CAPTURE(features);
        const device_queue queue;
        const std::int64_t rows = std::int64_t{batch} * tokens;
        doubles mask;
        for (std::int64_t r = 0; r != rows; ++r) { mask.push_back(draw.between(0, 1)); }
        const doubles padding = draw.normal<T>(std::int64_t{tokens} * features);
        doubles y = draw.normal<T>(rows * features);
        const doubles dy = draw.normal<T>(rows * features);
        doubles dx(dy.size());
        doubles dpadding = draw.normal<float>(std::int64_t{tokens} * features);
        const tensor<float> device_mask(mask);
        const tensor<T> device_padding(padding);
        const tensor<T> device_y(y);
        const tensor<T> device_dy(dy);
        const tensor<T> device_dx(rows * features);
        const tensor<float> device_dpadding(dpadding);
        const tensor<float> again(dpadding);
        plain.replace_padding(batch, tokens, features, mask.data(), padding.data(), y.data());
        plain.replace_padding_backward(batch, tokens, features, mask.data(), dy.data(), dx.data(), dpadding.data());
        cuda::replace_padding(queue.on(), batch, tokens, features, device_mask.data(), device_padding.data(),
                              device_y.data());
        cuda::replace_padding_backward(queue.on(), batch, tokens, features, device_mask.data(), device_dy.data(),
                                       device_dx.data(), device_dpadding.data());
        CHECK(device_y.download(queue) == y);
        CHECK(device_dx.download(queue) == dx);
        CHECK(device_dx.intact(queue));
        CHECK(worst<float>(device_dpadding.download(queue), dpadding, 4.0 * batch * float_epsilon) < 1.0);
        // in place
        cuda::replace_padding_backward(queue.on(), batch, tokens, features, device_mask.data(), device_dy.data(),
                                       device_dy.data(), again.data());
        CHECK(device_dy.download(queue) == dx);
        CHECK(again.download(queue) == device_dpadding.download(queue));
    }
}

TEST_CASE("cuda operations of conditioning refuse sizes that are none") {
    const device_queue queue;
    float* const none = nullptr;
    CHECK_THROWS_AS(cuda::rotary(queue.on(), {2, 2, 1, 6, 1.0}, 1, none, none), pulse::input_error);
    CHECK_THROWS_AS(cuda::embedding(queue.on(), {0, 4}, 1, none, none, none), pulse::input_error);
    CHECK_THROWS_AS(cuda::replace_padding(queue.on(), 1, 0, 1, none, none, none), pulse::input_error);
    CHECK_THROWS_AS(cuda::adaptive_norm(queue.on(), {0, 1, 1}, 1, none, none, none, none, none, none, none),
                    pulse::input_error);
}
