#pragma once

#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include <support/operations/trial.hpp>

// Convolutions, linear layers and their gradients equal the plain loops in double within the rounding of their sums.

namespace pulse::test {

/// Checks one source, and the pair of its two parts: the last `second` channels and those before. `inputs`: checks
/// input gradients, too, which no bias affects.
template <class Trial>
void check_convolution(Trial& t, const conv2d_shape& s, int batch, int second, bool adds, bool biased,
                       bool inputs = true, int microbatches = 2) {
    using T = typename Trial::T;
    const into how = adds ? into::add : into::write;
    std::string operation;
    CAPTURE(operation);
    CAPTURE(batch);
    CAPTURE(s.in_channels);
    CAPTURE(s.out_channels);
    CAPTURE(s.kernel);
    CAPTURE(s.stride);
    CAPTURE(s.pad_before);
    CAPTURE(s.pad_after);
    CAPTURE(s.in_height);
    CAPTURE(s.in_width);
    CAPTURE(second);
    CAPTURE(adds);
    CAPTURE(biased);
    CAPTURE(t.offset);
    const std::int64_t taps = std::int64_t{s.kernel} * s.kernel;
    const std::int64_t first = std::int64_t{batch} * s.in_height * s.in_width * (s.in_channels - second);
    const std::int64_t ins = batch * s.in_elements();
    const std::int64_t outs = batch * s.out_elements();
    const std::int64_t weights = s.weight_elements();
    const doubles x = t.normal(ins);
    const doubles xa = t.normal(first);
    const doubles xb = t.normal(ins - first);
    const doubles w = t.normal(weights);
    const doubles b = biased ? t.normal(s.out_channels) : doubles{};
    const doubles dy = t.normal(outs);
    const double forward = t.sum_error(static_cast<double>(s.in_channels * taps));
    const double back = t.sum_error(static_cast<double>(s.out_channels * taps));
    // gradients are rounded to T before they are added
    const double weight =
        t.sum_error(static_cast<double>(outs / s.out_channels)) + (sizeof(T) < sizeof(float) ? rounding_error<T> : 0.0);
    const auto bias_of = [&](auto* dw) { return biased ? dw + weights : nullptr; };
    operation = "forward";
    t.template check_sums<T>({x, w, b}, outs, adds, forward, [&](auto& on, const auto& in, auto* y) {
        on.conv2d(s, batch, in[0], in[1], in[2], y, how);
    });
    operation = "weight gradient";
    t.template check_sums<float>({x, dy}, weights + s.out_channels, true, weight,
                                 [&](auto& on, const auto& in, auto* dw) {
                                     for (int m = 0; m != microbatches; ++m) {
                                         on.conv2d_backward_weight(s, batch, in[0], in[1], dw, bias_of(dw));
                                     }
                                 });
    operation = "pair";
    t.template check_sums<T>({xa, xb, w, b}, outs, adds, forward, [&](auto& on, const auto& in, auto* y) {
        on.conv2d_pair(s, second, batch, in[0], in[1], in[2], in[3], y, how);
    });
    operation = "weight gradient of a pair";
    t.template check_sums<float>(
        {xa, xb, dy}, weights + s.out_channels, true, weight, [&](auto& on, const auto& in, auto* dw) {
            on.conv2d_pair_backward_weight(s, second, batch, in[0], in[1], in[2], dw, bias_of(dw));
        });
    if (!inputs) { return; }
    operation = "input gradient";
    t.template check_sums<T>({dy, w}, ins, adds, back, [&](auto& on, const auto& in, auto* dx) {
        on.conv2d_backward_input(s, batch, in[0], in[1], dx, how);
    });
    operation = "input gradient of a pair";
    t.template check_sums<T>({dy, w}, ins, adds, back, [&](auto& on, const auto& in, auto* dx) {
        on.conv2d_pair_backward_input(s, second, batch, in[0], in[1], dx, second != 0 ? dx + first : nullptr, how);
    });
}

template <class Trial>
void check_linear(Trial& t, const linear_shape& s, std::int64_t rows, bool adds, bool biased) {
    using T = typename Trial::T;
    const into how = adds ? into::add : into::write;
    CAPTURE(s.in_features);
    CAPTURE(s.out_features);
    CAPTURE(rows);
    CAPTURE(adds);
    CAPTURE(biased);
    CAPTURE(t.offset);
    const std::int64_t weights = std::int64_t{s.in_features} * s.out_features;
    const doubles x = t.normal(rows * s.in_features);
    const doubles w = t.normal(weights);
    const doubles b = biased ? t.normal(s.out_features) : doubles{};
    const doubles dy = t.normal(rows * s.out_features);
    t.template check_sums<T>(
        {x, w, b}, rows * s.out_features, adds, t.sum_error(s.in_features),
        [&](auto& on, const auto& in, auto* y) { on.linear(s, rows, in[0], in[1], in[2], y, how); });
    t.template check_sums<T>(
        {dy, w}, rows * s.in_features, adds, t.sum_error(s.out_features),
        [&](auto& on, const auto& in, auto* dx) { on.linear_backward_input(s, rows, in[0], in[1], dx, how); });
    t.template check_sums<float>({x, dy}, weights + s.out_features, true, t.sum_error(static_cast<double>(rows)),
                                 [&](auto& on, const auto& in, auto* dw) {
                                     auto* const db = biased ? dw + weights : nullptr;
                                     for (int microbatch = 0; microbatch != 2; ++microbatch) {
                                         on.linear_backward_weight(s, rows, in[0], in[1], dw, db);
                                     }
                                 });
}

} // namespace pulse::test
