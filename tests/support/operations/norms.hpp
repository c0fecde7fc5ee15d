#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <support/operations/trial.hpp>

// Norms and their gradients equal the plain loops in double and write only their results. The error bounds count the
// rounding of the mean and of the differences from it in standard deviations.

namespace pulse::test {

template <class Trial>
void check_group_norm(Trial& t, const group_norm_shape& s, int batch, double shift = 0.3) {
    CAPTURE(s.channels);
    CAPTURE(s.second_channels);
    CAPTURE(s.groups);
    CAPTURE(s.pixels);
    CAPTURE(s.silu);
    CAPTURE(batch);
    CAPTURE(shift);
    const std::int64_t pixels = std::int64_t{batch} * s.pixels;
    const std::int64_t all = s.all_channels();
    const double relative = 11.4 * (1.0 + std::abs(shift)) * float_epsilon;
    const doubles xa = t.normal(pixels * s.channels, 1.5, shift);
    const doubles xb = t.normal(pixels * s.second_channels, 0.5, shift);
    const doubles gamma = t.normal(all);
    const doubles beta = t.normal(all);
    const auto left = t.check(
        {xa, xb, gamma, beta}, {},
        {t.writes(pixels * all, relative), t.writes_sums(std::int64_t{batch} * s.groups * 2, relative)},
        [&](auto& on, const auto& o) { on.group_norm(s, batch, o.x[0], o.x[1], o.x[2], o.x[3], o.y[0], o.sums[0]); });
    const error_bound affine{relative, {3.0 * std::sqrt(static_cast<double>(pixels))}};
    for (const into how : {into::write, into::add}) {
        // One pixel of one channel: the group's two normalised values are +-1 and gradients cancel; epsilon bounds the
        // rest.
        t.check({xa, xb, gamma, beta, t.normal(pixels * all)}, {rounded<float>(left[1])},
                {t.puts(how, pixels * s.channels, 4.0 * relative), t.writes(pixels * s.second_channels, 4.0 * relative),
                 t.adds_sums(all, affine), t.adds_sums(all, affine)},
                [&](auto& on, const auto& o) {
                    on.group_norm_backward(s, batch, o.x[0], o.x[1], o.x[2], o.x[3], o.a[0], o.x[4], o.y[0], o.y[1],
                                           o.sums[0], o.sums[1], how);
                });
    }
}

/// Groups of one channel, of all channels, and groups that straddle the two sources.
template <class Trial>
void check_group_norms(Trial& t) {
    for (group_norm_shape s : std::vector<group_norm_shape>{{32, 0, 8, 64},
                                                            {80, 0, 8, 49},
                                                            {17, 0, 1, 30},
                                                            {7, 0, 7, 65},
                                                            {1, 0, 1, 50},
                                                            {3, 0, 3, 20},
                                                            {64, 32, 8, 36},
                                                            {24, 8, 4, 49},
                                                            {20, 12, 2, 33},
                                                            {5, 10, 3, 20},
                                                            {8, 16, 3, 128},
                                                            {40, 40, 8, 30},
                                                            {64, 0, 8, 49},
                                                            {48, 0, 3, 64},
                                                            {32, 64, 8, 49},
                                                            {3, 3, 2, 9},
                                                            {13, 19, 4, 127}}) {
        s.silu = t.draw.between(0, 1) == 1;
        check_group_norm(t, s, t.draw.between(1, 3));
    }
}

/// Groups that straddle the two sources; `draw_device` may change the device before each check.
template <class Trial, class Draw>
void check_drawn_group_norms(Trial& t, int rounds, int least_pixels, const Draw& draw_device) {
    for (int i = 0; i != rounds; ++i) {
        group_norm_shape s;
        s.groups = t.draw.between(1, 6);
        const int all = s.groups * t.draw.between(2, 12);
        s.second_channels = t.draw.between(0, all - 1);
        s.channels = all - s.second_channels;
        s.pixels = t.draw.between(least_pixels, 150);
        s.silu = t.draw.between(0, 1) == 1;
        draw_device();
        check_group_norm(t, s, t.draw.between(1, 4));
    }
}

/// Takes statistics of whole images, then normalises `rows` rows of the last image into strided rows.
template <class Trial>
void check_group_norm_pieces(Trial& t, const group_norm_shape& s, int rows, int batch) {
    CAPTURE(s.channels);
    CAPTURE(s.groups);
    CAPTURE(s.pixels);
    CAPTURE(rows);
    const std::int64_t n = std::int64_t{s.pixels} * s.channels;
    const int width = s.pixels / rows;
    const std::int64_t stride = std::int64_t{width + 2} * s.channels + (t.offset == 0 ? 0 : 3);
    const double relative = 14.4 * float_epsilon;
    const doubles x = t.normal(batch * n, 1.5, 0.3);
    const auto left = t.check({x}, {}, {t.writes_sums(std::int64_t{batch} * s.groups * 2, relative)},
                              [&](auto& on, const auto& o) { on.group_norm_statistics(s, batch, o.x[0], o.sums[0]); });
    outcome y = t.writes(rows * stride, relative);
    y.before = t.normal(rows * stride); // the gaps between the rows must stay
    t.check({x, t.normal(s.channels), t.normal(s.channels)}, {rounded<float>(left[0])}, {y},
            [&](auto& on, const auto& o) {
                on.group_norm_rows(s, rows, width, o.x[0] + (batch - 1) * n, o.x[1], o.x[2],
                                   o.a[0] + (batch - 1) * std::int64_t{s.groups} * 2, o.y[0], stride);
            });
}

template <class Trial>
void check_layer_norm(Trial& t, const layer_norm_shape& s, std::int64_t rows, double shift = 0.3) {
    CAPTURE(s.features);
    CAPTURE(rows);
    CAPTURE(shift);
    const std::int64_t n = rows * s.features;
    // With one or two features a row may lie within rounding of its mean, and epsilon alone bounds 1/sigma.
    const double few = s.features < 3 ? 1.0 / std::sqrt(s.epsilon) : 1.0;
    const double relative = 11.4 * (1.0 + std::abs(shift)) * float_epsilon;
    const doubles x = t.normal(n, 1.5, shift);
    const doubles gamma = t.normal(s.features);
    const auto left = t.check(
        {x, gamma, t.normal(s.features)}, {}, {t.writes(n, few * relative), t.writes_sums(2 * rows, few * relative)},
        [&](auto& on, const auto& o) { on.layer_norm(s, rows, o.x[0], o.x[1], o.x[2], o.y[0], o.sums[0]); });
    const double terms = 3.0 * std::sqrt(static_cast<double>(rows));
    for (const into how : {into::write, into::add}) {
        t.check({x, gamma, t.normal(n)}, {rounded<float>(left[1])},
                {t.puts(how, n, 4.0 * few * relative), t.adds_sums(s.features, {few * relative, {terms}}),
                 t.adds_sums(s.features, {relative, {terms}})},
                [&](auto& on, const auto& o) {
                    on.layer_norm_backward(s, rows, o.x[0], o.x[1], o.a[0], o.x[2], o.y[0], o.sums[0], o.sums[1], how);
                });
    }
}

/// `affine` and `scaled`: which of the optional tensors are present.
template <class Trial>
void check_adaptive_norm(Trial& t, const adaptive_norm_shape& s, int batch, bool affine, bool scaled) {
    CAPTURE(s.features);
    CAPTURE(s.tokens);
    CAPTURE(batch);
    CAPTURE(affine);
    CAPTURE(scaled);
    const auto some = [&](bool there, std::int64_t n) { return there ? t.normal(n) : doubles{}; };
    const std::int64_t rows = std::int64_t{batch} * s.tokens;
    const std::int64_t n = rows * s.features;
    const std::int64_t modulations = batch * s.stride;
    const double relative = 19.4 * float_epsilon;
    // Two features may lie within rounding of their mean: epsilon alone bounds 1/sigma.
    const double few = s.features == 2 ? 1.0 / std::sqrt(s.epsilon) : 1.0;
    const doubles x = t.normal(n, 1.5, 0.3);
    const doubles gamma = some(affine, s.features);
    const doubles beta = some(affine, s.features);
    const doubles scale = some(scaled, modulations);
    const auto left =
        t.check({x, gamma, beta, scale, t.normal(modulations)}, {},
                {t.writes(n, few * relative), t.writes_sums(2 * rows, few * relative)}, [&](auto& on, const auto& o) {
                    on.adaptive_norm(s, batch, o.x[0], o.x[1], o.x[2], o.x[3], o.x[4], o.y[0], o.sums[0]);
                });
    const error_bound of_rows{relative, {6.0 * std::sqrt(static_cast<double>(rows))}};
    const error_bound of_sample{relative, {6.0 * std::sqrt(static_cast<double>(s.tokens))}};
    for (const into how : {into::write, into::add}) {
        // one feature has no deviation, so epsilon decides; two may have next to none
        const doubles size = s.features == 1 ? doubles{8e3} : s.features == 2 ? doubles{14.5} : doubles{};
        std::vector<outcome> gradients{t.puts(how, n, error_bound{4.0 * relative, size})};
        // the gaps between the samples' gradients must stay
        for (const bool there : {scaled, true}) { gradients.push_back({some(there, modulations), of_sample}); }
        for (int i = 0; i != 2; ++i) { gradients.push_back({some(affine, s.features), of_rows, true}); }
        t.check({x, gamma, beta, scale, t.normal(n)}, {rounded<float>(left[1])}, gradients,
                [&](auto& on, const auto& o) {
                    on.adaptive_norm_backward(s, batch, o.x[0], o.x[1], o.x[2], o.x[3], o.a[0], o.x[4], o.y[0],
                                              o.sums[0], o.sums[1], o.y[1], o.y[2], how);
                });
    }
}

/// With and without each of the optional tensors.
template <class Trial>
void check_adaptive_norms(Trial& t) {
    for (const bool affine : {false, true}) {
        for (const bool scaled : {false, true}) {
            check_adaptive_norm(t, {64, 7, 64}, 2, affine, scaled);
            check_adaptive_norm(t, {37, 5, 111}, 3, affine, scaled);
            check_adaptive_norm(t, {1, 9, 2}, 2, affine, scaled);
        }
    }
}

template <class Trial>
void check_rms_norm(Trial& t, int features, std::int64_t rows) {
    CAPTURE(features);
    const layer_norm_shape s{features, 1e-6};
    const double relative = Trial::either({7.4 * float_epsilon}, {20.0 * float_epsilon}).relative;
    t.check({t.normal(rows * features, 3.0, 0.5), t.normal(features)}, {}, {t.writes(rows * features, relative)},
            [&](auto& on, const auto& o) { on.rms_norm(s, rows, o.x[0], o.x[1], o.y[0]); });
}

} // namespace pulse::test
