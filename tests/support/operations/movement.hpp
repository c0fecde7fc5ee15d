#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <support/operations/trial.hpp>

// Operations that move numbers put each in its place; those that sum or rotate them equal the plain loops in double.

namespace pulse::test {

template <class Trial>
void check_copied_rows(Trial& t) {
    struct strided {
        std::int64_t rows, n, from, to;
    };
    for (const strided& s : {strided{5, 16, 16, 40},
                             {7, 8, 24, 8},
                             {4, 3, 5, 3},
                             {6, 24, 27, 32},
                             {1, 1, 1, 1},
                             {9, 64, 64, 72},
                             {5, 7, 10, 8}}) {
        CAPTURE(s.n);
        t.check({t.normal(s.rows * s.from)}, {}, {t.moves_into(s.rows * s.to)},
                [&](auto& on, const auto& o) { on.copy_rows(s.rows, s.n, o.x[0], s.from, o.y[0], s.to); });
    }
}

template <class Trial>
void check_patches(Trial& t, const patch_shape& s, int batch) {
    CAPTURE(s.patch);
    CAPTURE(s.channels);
    CAPTURE(s.leading);
    const std::int64_t tokens = std::int64_t{batch} * s.tokens() * s.features();
    const std::int64_t image = batch * s.image_elements();
    // converting an image to tokens and back yields the image
    t.check({t.normal(tokens), t.normal(image)}, {}, {t.moves(image), t.moves(tokens), t.moves(image)},
            [&](auto& on, const auto& o) {
                on.patches_to_image(s, batch, o.x[0], o.y[0]);
                on.image_to_patches(s, batch, o.x[1], o.y[1]);
                on.patches_to_image(s, batch, o.y[1], o.y[2]);
            });
}
template <class Trial>
void check_drawn_patches(Trial& t, int rounds) {
    for (const patch_shape& s :
         {patch_shape{4, 3, 2, 4, 2}, {2, 2, 2, 3, 0}, {3, 5, 1, 16, 1}, {1, 2, 4, 1, 3}, {2, 3, 2, 8, 0}}) {
        check_patches(t, s, t.draw.between(1, 3));
    }
    for (int i = 0; i != rounds; ++i) {
        const int rows = t.draw.between(1, 5);
        const int columns = t.draw.between(1, 5);
        const int patch = t.draw.between(1, 4);
        const int channels = t.draw.between(1, 20);
        check_patches(t, {rows, columns, patch, channels, t.draw.between(0, 2)}, t.draw.between(1, 3));
    }
}

template <class Trial>
void check_upsampling(Trial& t, int batch, int height, int width, int channels) {
    CAPTURE(height);
    CAPTURE(width);
    CAPTURE(channels);
    const std::int64_t n = std::int64_t{batch} * height * width * channels;
    t.check({t.normal(n), t.normal(4 * n)}, {}, {t.moves(4 * n), t.writes(n, 3.4 * float_epsilon)},
            [&](auto& on, const auto& o) {
                on.upsample_nearest(batch, height, width, channels, o.x[0], o.y[0]);
                on.upsample_nearest_backward(batch, height, width, channels, o.x[1], o.y[1]);
            });
}

/// Sums of each sample's pixels; sums over all samples, added to a tensor; and one value added to all pixels of a
/// sample.
template <class Trial>
void check_pixel_sums(Trial& t, int batch, int pixels, int channels) {
    CAPTURE(batch);
    CAPTURE(pixels);
    CAPTURE(channels);
    const std::int64_t rows = std::int64_t{batch} * pixels;
    const std::int64_t sums = std::int64_t{batch} * channels;
    const doubles y = t.normal(rows * channels);
    const doubles sizes = magnitudes(y);
    const outcome bias = t.adds_sums(channels, {});
    std::vector<outcome> left{t.writes(sums, error_bound{1.0, doubles(static_cast<std::size_t>(sums))}),
                              {bias.before, {1.0, magnitudes(bias.before)}, true}};
    auto& on = t.side.oracle;
    on.sum_pixels(batch, pixels, channels, sizes.data(), left[0].error.scale.data());
    on.sum_rows(rows, channels, sizes.data(), left[1].error.scale.data());
    // a few roundings of sums of their likely magnitude, but at most the bound of a sum of that length
    const double likely = 6.0 * float_epsilon * 3.0 * std::sqrt(static_cast<double>(rows));
    for (double& s : left[0].error.scale) { s = std::min(likely, test::sum_error(pixels) * s); }
    for (double& s : left[1].error.scale) { s = std::min(likely, test::sum_error(static_cast<double>(rows) + 1) * s); }
    left.push_back(t.puts(into::add, rows * channels, 0.0));
    t.check({y, t.normal(sums)}, {}, left, [&](auto& on, const auto& o) {
        on.sum_pixels(batch, pixels, channels, o.x[0], o.y[0]);
        on.sum_rows(rows, channels, o.x[0], o.sums[0]);
        on.add_per_sample(batch, pixels, channels, o.x[1], o.y[1]);
    });
}

/// Resamples the vectors of one grid to another, and their gradients back.
template <class Trial>
void check_resampling(Trial& t, const resample_shape& s, int batch) {
    CAPTURE(s.features);
    const std::int64_t from = std::int64_t{s.from_tokens()} * s.features;
    const std::int64_t to = std::int64_t{batch} * s.tokens() * s.features;
    const double steps = sizeof(typename Trial::T) < sizeof(float) ? 2.0 * rounding_error<typename Trial::T> : 0.0;
    t.check({t.normal(from), t.normal(to)}, {},
            {t.puts(into::add, to, steps + 16.0 * float_epsilon), t.adds_sums(from, {64.0 * float_epsilon})},
            [&](auto& on, const auto& o) {
                on.add_resampled(s, batch, o.x[0], o.y[0]);
                on.resampled_sums(s, batch, o.x[1], o.sums[0]);
            });
}
template <class Trial>
void check_drawn_resampling(Trial& t, int rounds, int most_features) {
    for (const resample_shape& s :
         {resample_shape{2, 3, 4, 5, 6, 2}, {4, 4, 3, 7, 3, 1}, {5, 2, 1, 2, 4, 0}, {1, 1, 2, 2, 1, 1}}) {
        check_resampling(t, s, 2);
    }
    const auto upto = [&](int most) { return t.draw.between(1, most); };
    for (int i = 0; i != rounds; ++i) {
        const resample_shape s{upto(6), upto(6), upto(9), upto(9), upto(most_features), t.draw.between(0, 2)};
        check_resampling(t, s, upto(3));
    }
}

/// Rotates pairs, and rotates them back, in place as well.
template <class Trial>
void check_rotary(Trial& t, const rotary_shape& s, int batch) {
    CAPTURE(s.head_size);
    const std::int64_t n = std::int64_t{batch} * s.tokens() * s.width();
    const auto error = Trial::either({3.4 * float_epsilon}, {6.0 * float_epsilon, {4.0}});
    const doubles x = t.normal(n);
    const auto as = [&](int other) { return outcome{.before = x, .error = error, .same_as = other}; };
    t.check({x}, {}, {t.writes(n, error), t.writes(n, error), as(0), as(1)}, [&](auto& on, const auto& o) {
        on.rotary(s, batch, o.x[0], o.y[0]);
        on.rotary_backward(s, batch, o.x[0], o.y[1]);
        on.rotary(s, batch, o.y[2], o.y[2]);
        on.rotary_backward(s, batch, o.y[3], o.y[3]);
    });
}
template <class Trial>
void check_drawn_rotary(Trial& t, int rounds) {
    for (const auto& [s, batch] : {std::pair{rotary_shape{3, 4, 2, 88, 32.0}, 2},
                                   {rotary_shape{2, 5, 3, 12, 16.0}, 3},
                                   {rotary_shape{1, 1, 1, 4, 1.0}, 1},
                                   {rotary_shape{16, 16, 5, 16, 32.0}, 1}}) {
        check_rotary(t, s, batch);
    }
    const auto upto = [&](int most) { return t.draw.between(1, most); };
    for (int i = 0; i != rounds; ++i) { check_rotary(t, {upto(9), upto(9), upto(4), 4 * upto(22), 32.0}, upto(3)); }
}

/// Looks up rows; the gradient adds up over repeated rows.
template <class Trial>
void check_embedding(Trial& t, const embedding_shape& s, int rows) {
    CAPTURE(s.entries);
    CAPTURE(s.features);
    CAPTURE(rows);
    doubles indices;
    for (int r = 0; r != rows; ++r) { indices.push_back(t.draw.between(0, s.entries - 1)); }
    const std::int64_t n = std::int64_t{rows} * s.features;
    const std::int64_t table = std::int64_t{s.entries} * s.features;
    const doubles dy = t.normal(n);
    outcome gradient = t.adds_sums(table, {0.5 * rows * float_epsilon});
    gradient.error.scale = magnitudes(gradient.before);
    t.side.oracle.embedding_backward_weight(s, rows, indices.data(), magnitudes(dy).data(),
                                            gradient.error.scale.data());
    t.check({t.normal(table), dy}, {indices}, {t.moves(n), gradient}, [&](auto& on, const auto& o) {
        on.embedding(s, rows, o.a[0], o.x[0], o.y[0]);
        on.embedding_backward_weight(s, rows, o.a[0], o.x[1], o.sums[0]);
    });
}
template <class Trial>
void check_drawn_embeddings(Trial& t, int rounds) {
    check_embedding(t, {7, 64}, 12);
    check_embedding(t, {100, 5}, 30);
    check_embedding(t, {1, 1}, 3);
    const auto upto = [&](int most) { return t.draw.between(1, most); };
    for (int i = 0; i != rounds; ++i) { check_embedding(t, {upto(6), upto(40)}, upto(12)); }
}

/// Replaces padding by learned vectors, whose gradients are those of the rows that they replaced.
template <class Trial>
void check_padding(Trial& t, int batch, int tokens, int features) {
    CAPTURE(batch);
    CAPTURE(tokens);
    CAPTURE(features);
    doubles mask;
    for (int r = 0; r != batch * tokens; ++r) { mask.push_back(t.draw.between(0, 1)); }
    const std::int64_t learned = std::int64_t{tokens} * features;
    const doubles dy = t.normal(batch * learned);
    const outcome in_place{dy, {}, false, true};
    outcome sums = t.adds_sums(learned, {0.5 * batch * float_epsilon});
    sums.error.scale = magnitudes(sums.before);
    doubles sizes = magnitudes(dy);
    t.side.oracle.replace_padding_backward(batch, tokens, features, mask.data(), sizes.data(), sizes.data(),
                                           sums.error.scale.data());
    outcome same_sums = sums;
    same_sums.same_as = 3;
    t.check({t.normal(learned), dy}, {mask},
            {t.moves_into(batch * learned), t.moves(batch * learned), in_place, sums, same_sums},
            [&](auto& on, const auto& o) {
                on.replace_padding(batch, tokens, features, o.a[0], o.x[0], o.y[0]);
                on.replace_padding_backward(batch, tokens, features, o.a[0], o.x[1], o.y[1], o.sums[0]);
                on.replace_padding_backward(batch, tokens, features, o.a[0], o.y[2], o.y[2], o.sums[1]);
            });
}
template <class Trial>
void check_drawn_padding(Trial& t, int rounds) {
    check_padding(t, 3, 5, 16);
    check_padding(t, 2, 7, 3);
    check_padding(t, 1, 1, 1);
    check_padding(t, 4, 77, 24);
    const auto upto = [&](int most) { return t.draw.between(1, most); };
    for (int i = 0; i != rounds; ++i) { check_padding(t, upto(4), upto(9), upto(40)); }
}

/// Some keys of each text are padding, but never the first; `parts`: bits of causality, mask and bias.
template <class Trial>
void check_masked_attention(Trial& t, masked_attention_shape s, int batch, const std::vector<int>& parts) {
    const std::int64_t n = std::int64_t{batch} * s.tokens * s.width();
    doubles mask;
    for (int i = 0; i != batch * s.tokens; ++i) { mask.push_back(i % s.tokens == 0 ? 1 : t.draw.between(0, 1)); }
    const error_bound error =
        Trial::either({test::sum_error(s.tokens + s.head_size), {4.0}}, {40.0 * float_epsilon, {4.0}});
    for (const int some : parts) {
        CAPTURE(s.tokens);
        CAPTURE(some);
        s.causal = (some & 1) != 0;
        const doubles bias = (some & 4) != 0 ? t.normal(std::int64_t{s.distances()} * s.heads) : doubles{};
        t.check({t.normal(n), t.normal(n), t.normal(n), bias}, {(some & 2) != 0 ? mask : doubles{}},
                {t.writes(n, error)}, [&](auto& on, const auto& o) {
                    on.masked_attention(s, batch, o.x[0], o.x[1], o.x[2], o.a[0], o.x[3], o.y[0]);
                });
    }
}

} // namespace pulse::test
