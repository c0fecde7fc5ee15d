#pragma once

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/nn/linear_batch.hpp>

#include <support/operations/trial.hpp>

// Gradients written by a first microbatch equal gradients added to 0.

namespace pulse::test {

/// op(gradient_place) produces n gradients. Writing over NaN and then adding must give what adding to zeros gives, bit
/// for bit except for the sign of 0.
template <class Trial, class Op>
void check_written(Trial& t, std::int64_t n, const Op& op) {
    using A = typename Trial::A;
    using place = gradient_place<A>;
    typename Trial::template tensor<A> added(doubles(static_cast<std::size_t>(n)), t.offset);
    typename Trial::template tensor<A> written(Trial::poison(n), t.offset);
    for (const into how : {into::write, into::add}) {
        op(place{added.data()});
        op(place{written.data(), how});
        CHECK(t.side.read(written) == t.side.read(added));
    }
}

template <class Trial>
void check_written_convolution(Trial& t, const conv2d_shape& s, int batch, int second) {
    CAPTURE(s.in_channels);
    CAPTURE(s.out_channels);
    CAPTURE(s.kernel);
    CAPTURE(second);
    CAPTURE(t.offset);
    auto& on = t.side.on;
    const std::int64_t pixels = std::int64_t{batch} * s.in_height * s.in_width;
    auto x = t.drawn(pixels * s.in_channels);
    auto xb = t.drawn(pixels * second);
    auto dy = t.drawn(batch * s.out_elements());
    const std::int64_t n = s.weight_elements();
    check_written(t, n + s.out_channels,
                  [&](const auto& to) { on.conv2d_backward_weight(s, batch, x.data(), dy.data(), to, to + n); });
    check_written(t, n + s.out_channels, [&](const auto& to) {
        on.conv2d_pair_backward_weight(s, second, batch, x.data(), xb.data(), dy.data(), to, to + n);
    });
}

template <class Trial>
void check_written_linear(Trial& t, const linear_shape& s) {
    CAPTURE(s.in_features);
    CAPTURE(t.offset);
    constexpr std::int64_t rows = 19;
    const std::int64_t n = std::int64_t{s.in_features} * s.out_features;
    const std::int64_t results = rows * s.out_features;
    auto& on = t.side.on;
    auto x = t.drawn(rows * s.in_features);
    auto dy = t.drawn(2 * results);
    check_written(t, n + s.out_features,
                  [&](const auto& to) { on.linear_backward_weight(s, rows, x.data(), dy.data(), to, to + n); });
    check_written(t, 2 * n, [&](const auto& to) {
        nn::linear_batch_backward_weight(on, s, rows, x.data(), {{to, dy.data()}, {to + n, dy.data() + results}});
    });
}

/// `norm_rows`: the row counts to try for layer norm.
template <class Trial>
void check_written_sums(Trial& t, const std::vector<std::int64_t>& norm_rows) {
    using A = typename Trial::A;
    using numbers = typename Trial::template tensor<A>;
    auto& on = t.side.on;
    constexpr int batch = 2;
    numbers statistics(t.draw.template normal<A>(1000));
    auto x = t.drawn(4000);
    auto y = t.drawn(4000);
    auto gamma = t.drawn(2000);
    auto dx = t.drawn(4000);
    auto more = t.drawn(4000);

    check_written(t, 2 * 16, [&](const auto& to) {
        on.group_norm_backward({12, 4, 4, 9, 1e-5, true}, batch, x.data(), more.data(), gamma.data(), gamma.data(),
                               statistics.data(), y.data(), dx.data(), dx.data() + 2000, to, to + 16, into::write);
    });
    for (const int features : {24, 1400}) { // a warp's registers hold the short row; the long one is read again
        for (const std::int64_t rows : norm_rows) {
            if (rows * features > 4000) { continue; }
            check_written(t, 2 * features, [&](const auto& to) {
                on.layer_norm_backward({features, 1e-6}, rows, x.data(), gamma.data(), statistics.data(), y.data(),
                                       dx.data(), to, to + features, into::write);
            });
        }
    }
    check_written(t, 2 * 12, [&](const auto& to) {
        on.adaptive_norm_backward({12, 3, 20, 1e-6}, batch, x.data(), gamma.data(), gamma.data(), gamma.data(),
                                  statistics.data(), y.data(), dx.data(), to, to + 12, more.data(), more.data() + 2000,
                                  into::write);
    });
    for (const std::int64_t rows : {0, 3, 100}) { // many rows are summed in two passes
        check_written(t, 40, [&](const auto& to) { on.sum_rows(rows, 40, x.data(), to); });
    }
    const resample_shape grids{2, 3, 4, 5, 6, 2};
    check_written(t, std::int64_t{grids.from_tokens()} * grids.features,
                  [&](const auto& to) { on.resampled_sums(grids, batch, x.data(), to); });
    numbers indices(doubles{3.0, 0.0, 3.0, 4.0});
    check_written(t, 6 * 7, [&](const auto& to) {
        on.embedding_backward_weight({6, 7}, 4, indices.data(), x.data(), to);
    });
    numbers mask(doubles{1.0, 0.0, 1.0, 0.0, 0.0, 1.0});
    check_written(t, 3 * 5, [&](const auto& to) {
        on.replace_padding_backward(batch, 3, 5, mask.data(), x.data(), dx.data(), to);
    });
}

} // namespace pulse::test
