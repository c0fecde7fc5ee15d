#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/reference/backend.hpp>
#include <pulse/runtime/backend.hpp>

#include "block_trial.cuh"

namespace pulse_bench {

inline constexpr double bf16_rounding = 1.0 / 256;
inline constexpr double float_step = 1.0 / (1 << 23);

[[nodiscard]] inline std::string image_text(int side, int channels) {
    return std::to_string(side) + "x" + std::to_string(side) + "x" + std::to_string(channels);
}

/// GroupNorm and SiLU over the concatenation of two sources, forward or backward; one group of two samples is checked.
template <class B>
[[nodiscard]] block_case<B> group_norm_case(int batch, int side, int channels, int second, bool backward) {
    using T = typename B::scalar;
    const pulse::group_norm_shape s{channels, second, 32, side * side, 1e-5, true};
    const std::int64_t all = s.all_channels();
    const std::int64_t n = std::int64_t{batch} * s.pixels * all;
    const std::int64_t na = std::int64_t{batch} * s.pixels * channels;
    block_case<B> made;
    made.row = {backward ? "group_norm_backward" : "group_norm",
                image_text(side, channels) + (second != 0 ? "+" + std::to_string(second) : ""), batch};
    made.row.bytes = 2.0 * static_cast<double>(backward ? 3 * n : 2 * n);
    made.in = {na, n - na, all, all};
    made.out = {n};
    made.sums = {std::int64_t{batch} * s.groups * 2};
    const auto forward = [s, batch](B& b, const block_tensors<T>& t) {
        b.group_norm(s, batch, t.in[0].data(), t.in[1].data(), t.in[2].data(), t.in[3].data(), t.out[0].data(),
                     t.sums[0].data());
    };
    made.run = forward;
    if (backward) {
        made.in.push_back(n);
        made.out = {n, na, n - na};
        made.sums.insert(made.sums.end(), {all, all});
        made.prepare = forward;
        made.run = [s, batch](B& b, const block_tensors<T>& t) {
            b.group_norm_backward(s, batch, t.in[0].data(), t.in[1].data(), t.in[2].data(), t.in[3].data(),
                                  t.sums[0].data(), t.in[4].data(), t.out[1].data(), t.out[2].data(), t.sums[1].data(),
                                  t.sums[2].data(), pulse::into::write);
        };
    }
    made.check = [s, batch, all, backward](const block_results<T>& r, tally& found) {
        pulse::reference::backend<double> plain;
        const int size = s.all_channels() / s.groups;
        const pulse::group_norm_shape one{size, 0, 1, s.pixels, s.epsilon, s.silu};
        const std::int64_t numbers = std::int64_t{size} * s.pixels;
        for (const auto& [b, g] : {std::pair{0, s.groups - 1}, {batch - 1, s.groups / 2}}) {
            // Place of number i of the group: channel of the concatenation, pixel of all samples.
            const auto channel = [&](std::int64_t i) { return g * size + i % size; };
            const auto pixel = [&](std::int64_t i) { return std::int64_t{b} * s.pixels + i / size; };
            const auto source_of = [&](std::int64_t i) -> std::pair<std::size_t, std::int64_t> {
                const std::int64_t c = channel(i);
                return c < s.channels ? std::pair{std::size_t{0}, pixel(i) * s.channels + c}
                                      : std::pair{std::size_t{1}, pixel(i) * s.second_channels + c - s.channels};
            };
            std::vector<double> x(static_cast<std::size_t>(numbers));
            for (std::int64_t i = 0; i != numbers; ++i) {
                const auto [which, at] = source_of(i);
                x[static_cast<std::size_t>(i)] = r.in(which, at);
            }
            const auto gamma = r.gather(2, size, channel);
            const auto beta = r.gather(3, size, channel);
            std::vector<double> y(x.size());
            std::vector<double> statistics(2);
            plain.group_norm(one, 1, x.data(), nullptr, gamma.data(), beta.data(), y.data(), statistics.data());
            if (!backward) {
                for (std::int64_t i = 0; i != numbers; ++i) {
                    found.compare(r.got(0, pixel(i) * all + channel(i)), y[static_cast<std::size_t>(i)], bf16_rounding,
                                  100 * float_step);
                }
                continue;
            }
            const auto dy = r.gather(4, numbers, [&](std::int64_t i) { return pixel(i) * all + channel(i); });
            std::vector<double> dx(x.size());
            std::vector<double> unused(static_cast<std::size_t>(2 * size));
            plain.group_norm_backward(one, 1, x.data(), nullptr, gamma.data(), beta.data(), statistics.data(),
                                      dy.data(), dx.data(), nullptr, unused.data(), unused.data() + size,
                                      pulse::into::write);
            for (std::int64_t i = 0; i != numbers; ++i) {
                const auto [which, at] = source_of(i);
                found.compare(r.got(1 + which, at), dx[static_cast<std::size_t>(i)], bf16_rounding, 400 * float_step);
            }
        }
    };
    return made;
}

/// LayerNorm; rows of the front, the middle and the end are checked.
template <class B>
[[nodiscard]] block_case<B> layer_norm_case(int batch, int tokens, int features, bool backward) {
    using T = typename B::scalar;
    const pulse::layer_norm_shape s{features, 1e-5};
    const std::int64_t rows = std::int64_t{batch} * tokens;
    const std::int64_t n = rows * features;
    block_case<B> made;
    made.row = {backward ? "layer_norm_backward" : "layer_norm",
                std::to_string(tokens) + "x" + std::to_string(features), batch};
    made.row.bytes = 2.0 * static_cast<double>(backward ? 3 * n : 2 * n);
    made.in = {n, features, features};
    made.out = {n};
    made.sums = {2 * rows};
    const auto forward = [s, rows](B& b, const block_tensors<T>& t) {
        b.layer_norm(s, rows, t.in[0].data(), t.in[1].data(), t.in[2].data(), t.out[0].data(), t.sums[0].data());
    };
    made.run = forward;
    if (backward) {
        made.in.push_back(n);
        made.out.push_back(n);
        made.sums.insert(made.sums.end(), {features, features});
        made.prepare = forward;
        made.run = [s, rows](B& b, const block_tensors<T>& t) {
            b.layer_norm_backward(s, rows, t.in[0].data(), t.in[1].data(), t.sums[0].data(), t.in[3].data(),
                                  t.out[1].data(), t.sums[1].data(), t.sums[2].data(), pulse::into::write);
        };
    }
    made.check = [s, rows, features, backward](const block_results<T>& r, tally& found) {
        pulse::reference::backend<double> plain;
        const auto here = [](std::int64_t i) { return i; };
        const auto gamma = r.gather(1, features, here);
        const auto beta = r.gather(2, features, here);
        for (const std::int64_t row : {std::int64_t{0}, rows / 3, rows / 2, rows - 1}) {
            const auto in_row = [&](std::int64_t i) { return row * features + i; };
            const auto x = r.gather(0, features, in_row);
            std::vector<double> y(x.size());
            std::vector<double> statistics(2);
            plain.layer_norm(s, 1, x.data(), gamma.data(), beta.data(), y.data(), statistics.data());
            std::vector<double> dx(x.size());
            if (backward) {
                const auto dy = r.gather(3, features, in_row);
                std::vector<double> unused(2 * x.size());
                plain.layer_norm_backward(s, 1, x.data(), gamma.data(), statistics.data(), dy.data(), dx.data(),
                                          unused.data(), unused.data() + features, pulse::into::write);
            }
            for (std::int64_t i = 0; i != features; ++i) {
                const auto at = static_cast<std::size_t>(i);
                found.compare(r.got(backward ? 1 : 0, in_row(i)), backward ? dx[at] : y[at], bf16_rounding,
                              200 * float_step);
            }
        }
        if (!backward) { return; }
        // Sums over all rows for two features, with the statistics of the forward pass.
        for (const std::int64_t c : {std::int64_t{1}, std::int64_t{features} - 1}) {
            double slope = 0.0;
            double shift = 0.0;
            for (std::int64_t row = 0; row != rows; ++row) {
                const double dy = r.in(3, row * features + c);
                slope += dy * (r.in(0, row * features + c) - r.sum(0, 2 * row)) * r.sum(0, 2 * row + 1);
                shift += dy;
            }
            const double slack = 40 * float_step * std::sqrt(static_cast<double>(rows));
            found.compare(r.sum(1, c), slope, float_step, slack);
            found.compare(r.sum(2, c), shift, float_step, slack);
        }
    };
    return made;
}

/// GEGLU; four rows are checked.
template <class B>
[[nodiscard]] block_case<B> geglu_case(int batch, int tokens, int features, bool backward) {
    using T = typename B::scalar;
    const std::int64_t rows = std::int64_t{batch} * tokens;
    const std::int64_t n = rows * features;
    block_case<B> made;
    made.row = {backward ? "geglu_backward" : "geglu", std::to_string(tokens) + "x" + std::to_string(features), batch};
    made.row.bytes = 2.0 * static_cast<double>(backward ? 5 * n : 3 * n);
    made.in = {2 * n};
    if (backward) { made.in.push_back(n); }
    made.out = {backward ? 2 * n : n};
    made.run = [rows, features, backward](B& b, const block_tensors<T>& t) {
        if (backward) {
            b.geglu_backward(rows, features, t.in[0].data(), t.in[1].data(), t.out[0].data());
        } else {
            b.geglu(rows, features, t.in[0].data(), t.out[0].data());
        }
    };
    made.check = [rows, features, backward](const block_results<T>& r, tally& found) {
        pulse::reference::backend<double> plain;
        for (const std::int64_t row : {std::int64_t{0}, rows / 3, rows / 2, rows - 1}) {
            const auto x = r.gather(0, 2 * features, [&](std::int64_t i) { return 2 * row * features + i; });
            std::vector<double> wanted(x.size());
            if (backward) {
                const auto dy = r.gather(1, features, [&](std::int64_t i) { return row * features + i; });
                plain.geglu_backward(1, features, x.data(), dy.data(), wanted.data());
            } else {
                plain.geglu(1, features, x.data(), wanted.data());
            }
            const std::int64_t width = backward ? 2 * features : features;
            for (std::int64_t i = 0; i != width; ++i) {
                found.compare(r.got(0, row * width + i), wanted[static_cast<std::size_t>(i)], bf16_rounding,
                              100 * float_step);
            }
        }
    };
    return made;
}

/// An operation over n numbers, y from x (and dy): every 997th is checked.
template <class B, class Run, class Plain>
[[nodiscard]] block_case<B> scalar_case(const char* name, int batch, int side, int channels, int inputs, Run run,
                                        Plain plain) {
    using T = typename B::scalar;
    const std::int64_t n = std::int64_t{batch} * side * side * channels;
    block_case<B> made;
    made.row = {name, image_text(side, channels), batch};
    made.row.bytes = 2.0 * static_cast<double>((inputs + 1) * n);
    made.in.assign(static_cast<std::size_t>(inputs), n);
    made.out = {n};
    made.run = [n, run](B& b, const block_tensors<T>& t) { run(b, n, t); };
    made.check = [n, plain, inputs](const block_results<T>& r, tally& found) {
        for (std::int64_t i = 0; i < n; i += 997) {
            found.compare(r.got(0, i), plain(r.in(0, i), inputs > 1 ? r.in(1, i) : 0.0), bf16_rounding,
                          20 * float_step);
        }
    };
    return made;
}

/// Sums over rows, as bias gradients are; four columns are checked.
template <class B>
[[nodiscard]] block_case<B> sum_case(int batch, int side, int channels) {
    using T = typename B::scalar;
    const std::int64_t rows = std::int64_t{batch} * side * side;
    block_case<B> made;
    made.row = {"sum_rows", image_text(side, channels), batch};
    made.row.bytes = 2.0 * static_cast<double>(rows * channels);
    made.in = {rows * channels};
    made.sums = {channels};
    made.run = [rows, channels](B& b, const block_tensors<T>& t) {
        b.sum_rows(rows, channels, t.in[0].data(), t.sums[0].data());
    };
    made.check = [rows, channels](const block_results<T>& r, tally& found) {
        for (const int c : {0, channels / 3, channels / 2, channels - 1}) {
            double wanted = 0.0;
            for (std::int64_t row = 0; row != rows; ++row) { wanted += r.in(0, row * channels + c); }
            found.compare(r.sum(0, c), wanted, float_step, 40 * float_step * std::sqrt(static_cast<double>(rows)));
        }
    };
    return made;
}

/// Upsampling; every 997th number is checked.
template <class B>
[[nodiscard]] block_case<B> upsample_case(int batch, int side, int channels, bool backward) {
    using T = typename B::scalar;
    const std::int64_t n = std::int64_t{batch} * side * side * channels;
    block_case<B> made;
    made.row = {backward ? "upsample_backward" : "upsample", image_text(side, channels), batch};
    made.row.bytes = 2.0 * static_cast<double>(5 * n);
    made.in = {backward ? 4 * n : n};
    made.out = {backward ? n : 4 * n};
    made.run = [batch, side, channels, backward](B& b, const block_tensors<T>& t) {
        if (backward) {
            b.upsample_nearest_backward(batch, side, side, channels, t.in[0].data(), t.out[0].data());
        } else {
            b.upsample_nearest(batch, side, side, channels, t.in[0].data(), t.out[0].data());
        }
    };
    made.check = [n, side, channels, backward](const block_results<T>& r, tally& found) {
        for (std::int64_t i = 0; i < n; i += 997) {
            const std::int64_t row = i / (std::int64_t{side} * channels);
            const std::int64_t column = i / channels % side;
            double sum = 0.0;
            for (int k = 0; k != 4; ++k) {
                const std::int64_t at = ((2 * row + k / 2) * 2 * side + 2 * column + k % 2) * channels + i % channels;
                if (backward) { sum += r.in(0, at); }
                if (!backward) { found.compare(r.got(0, at), r.in(0, i), 0.0, 0.0); }
            }
            if (backward) { found.compare(r.got(0, i), sum, bf16_rounding, 20 * float_step); }
        }
    };
    return made;
}

} // namespace pulse_bench
