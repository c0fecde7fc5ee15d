#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/runtime/optimizer_rule.hpp>

namespace pulse::train {

/// Constants of Adafactor as in its paper, which kohya's scripts use for SDXL with a given learning rate.
struct adafactor_constants {
    double decay_power{0.8}; ///< decay of the second moments at step t: 1 - t^-0.8
    double epsilon{1e-30};   ///< added to squares, to avoid 0 / 0
    double clip{1.0};        ///< largest root mean square of a tensor's update before the learning rate
};

/// Factors shared by every weight of a step, computed once in double.
struct adafactor_factors {
    float gradient_scale; ///< clipping factor of the global norm / loss scale
    float keep;           ///< 1 - learning_rate weight_decay
    float decay;
    float one_minus_decay;
    float epsilon;
    double learning_rate;
    double clip;
};

/// Factors of one step. Of `now`'s AdamW constants, Adafactor reads only the learning rate and the weight decay.
[[nodiscard]] inline adafactor_factors adafactor_factors_of(const optimizer_update& now,
                                                            const adafactor_constants& c = {}) {
    const double rest = std::pow(static_cast<double>(now.step), -c.decay_power);
    return {.gradient_scale = static_cast<float>(now.gradient_scale),
            .keep = static_cast<float>(1.0 - now.constants.learning_rate * now.constants.weight_decay),
            .decay = static_cast<float>(1.0 - rest),
            .one_minus_decay = static_cast<float>(rest),
            .epsilon = static_cast<float>(c.epsilon),
            .learning_rate = now.constants.learning_rate,
            .clip = c.clip};
}

/// Factor of an update whose squares sum to `squares` over its tensor: the learning rate, reduced where the root mean
/// square exceeds the clip.
[[nodiscard]] inline float adafactor_step_size(const adafactor_factors& f, double squares, std::size_t elements) {
    return static_cast<float>(f.learning_rate /
                              std::max(1.0, std::sqrt(squares / static_cast<double>(elements)) / f.clip));
}

/// One Adafactor step on a tensor `w` with gradient `g` of the same size, without a first moment. `second` holds the
/// means of the `rows` rows and then of the columns (0 before the first step); of a vector, with 0 rows, the squares.
///
/// Sums run in order, so a tensor takes the same step wherever it is placed.
///
/// Matrices and vectors take the step of transformers' Adafactor without parameter scaling and relative steps. A
/// convolution is a matrix of its first extent by the rest (parameter::matrix_rows); transformers factors each 3x3
/// slice.
///
/// Source: Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost" (2018), algorithms 4 and
/// 5 with relative step sizes and parameter scaling off, and decoupled weight decay.
inline void adafactor_step(const adafactor_factors& f, std::span<float> w, std::span<const float> g,
                           std::span<float> second, std::size_t rows) {
    const std::size_t size = w.size();
    const std::size_t columns = rows == 0 ? size : size / rows;
    const std::size_t lines = rows == 0 ? 1 : rows;
    const auto follow = [&](float& mean, double square) {
        mean = f.decay * mean + f.one_minus_decay * static_cast<float>(square + static_cast<double>(f.epsilon));
    };
    std::vector<double> column(columns);
    for (std::size_t i = 0; i != lines; ++i) {
        double row = 0;
        for (std::size_t j = 0; j != columns; ++j) {
            const auto slope = static_cast<double>(f.gradient_scale * g[i * columns + j]);
            row += slope * slope;
            column[j] += slope * slope;
        }
        if (rows != 0) { follow(second[i], row / static_cast<double>(columns)); }
    }
    double mean = 0;
    for (std::size_t i = 0; i != rows; ++i) { mean += static_cast<double>(second[i]); }
    const auto root = static_cast<float>(std::sqrt(mean / static_cast<double>(lines)));
    std::vector<float> by_column(columns);
    for (std::size_t j = 0; j != columns; ++j) {
        follow(second[rows + j], column[j] / static_cast<double>(lines));
        by_column[j] = 1.0F / std::sqrt(second[rows + j]);
    }
    const auto by_row = [&](std::size_t i) {
        // Separate roots: the product of two tiny means would underflow to 0.
        return rows == 0 ? 1.0F : root / std::sqrt(second[i]);
    };
    const auto update = [&](std::size_t at, float of_row, float of_column) {
        return f.gradient_scale * g[at] * of_row * of_column;
    };
    double squares = 0;
    for (std::size_t i = 0; i != lines; ++i) {
        const float of_row = by_row(i);
        for (std::size_t j = 0; j != columns; ++j) {
            const auto moved = static_cast<double>(update(i * columns + j, of_row, by_column[j]));
            squares += moved * moved;
        }
    }
    const float step_size = adafactor_step_size(f, squares, size);
    for (std::size_t i = 0; i != lines; ++i) {
        const float of_row = by_row(i);
        for (std::size_t j = 0; j != columns; ++j) {
            const std::size_t at = i * columns + j;
            w[at] = f.keep * w[at] - step_size * update(at, of_row, by_column[j]);
        }
    }
}

/// Row means, then column means, of AdamW's second moments `v` (of a vector, `v` itself), divided by AdamW's bias
/// correction: `correction` is 1 - beta2^t.
inline void factor_moments(std::span<const float> v, std::size_t rows, std::span<float> second, double correction) {
    const std::size_t columns = rows == 0 ? v.size() : v.size() / rows;
    const std::size_t lines = rows == 0 ? 1 : rows;
    std::vector<double> column(columns);
    for (std::size_t i = 0; i != lines; ++i) {
        double row = 0;
        for (std::size_t j = 0; j != columns; ++j) {
            row += static_cast<double>(v[i * columns + j]);
            column[j] += static_cast<double>(v[i * columns + j]);
        }
        if (rows != 0) { second[i] = static_cast<float>(row / static_cast<double>(columns) / correction); }
    }
    for (std::size_t j = 0; j != columns; ++j) {
        second[rows + j] = static_cast<float>(column[j] / static_cast<double>(lines) / correction);
    }
}

/// Inverse of factor_moments up to rank 1, bias included: v = `correction` times row mean times column mean over the
/// mean of the row means.
inline void expand_moments(std::span<const float> second, std::size_t rows, std::span<float> v, double correction) {
    const std::size_t columns = rows == 0 ? v.size() : v.size() / rows;
    const std::size_t lines = rows == 0 ? 1 : rows;
    double mean = 0;
    for (std::size_t i = 0; i != rows; ++i) { mean += static_cast<double>(second[i]); }
    mean /= static_cast<double>(lines);
    for (std::size_t i = 0; i != lines; ++i) {
        const double row = rows == 0 ? 1 : mean == 0 ? 0 : static_cast<double>(second[i]) / mean;
        for (std::size_t j = 0; j != columns; ++j) {
            v[i * columns + j] = static_cast<float>(correction * row * static_cast<double>(second[rows + j]));
        }
    }
}

} // namespace pulse::train
