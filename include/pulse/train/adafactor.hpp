#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/runtime/optimizer_rule.hpp>

namespace pulse::train {

/// What Adafactor's paper proposes, and kohya's scripts use for SDXL with the learning rate that is given.
struct adafactor_constants {
    double decay_power{0.8}; ///< the second moments' decay at step t is 1 - t^-0.8
    double epsilon{1e-30};   ///< added to squares, so that no update is 0 / 0
    double clip{1.0};        ///< largest root mean square of a tensor's update before the learning rate
};

/// What is the same for every weight of a step, computed once in double.
struct adafactor_factors {
    float gradient_scale; ///< clipping by the global norm, or the mean over replicas
    float keep;           ///< 1 - learning_rate weight_decay
    float decay;
    float one_minus_decay;
    float epsilon;
    double learning_rate;
    double clip;
};

/// Of the constants that the step has for AdamW it reads the learning rate and the weight decay.
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

/// What an update is multiplied by, given the sum of its squares over a tensor: the learning rate, less where the
/// root mean square is above the clip.
[[nodiscard]] inline float adafactor_step_size(const adafactor_factors& f, double squares, std::size_t elements) {
    return static_cast<float>(f.learning_rate /
                              std::max(1.0, std::sqrt(squares / static_cast<double>(elements)) / f.clip));
}

/// One Adafactor step on a tensor `w` with gradient `g`, of one size, without a first moment. `second` are the means of
/// its `rows` rows and, behind them, of its columns (0 before the first step); of a vector, with 0 rows, the squares.
///
/// Sums go in order, so that the same tensor takes the same step wherever it lies.
///
/// Matrices and vectors take the step of transformers' Adafactor without scaled parameters and relative steps. A
/// convolution is taken as the matrix of its first extent and the rest (parameter::matrix_rows); transformers factors
/// each 3x3 slice of it.
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
        // Roots apart: the product of two means of little more than 0 would be 0.
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

/// The means of the rows and columns of AdamW's second moments `v`, of a vector `v` itself, without the bias that AdamW
/// corrects: `correction` is its 1 - beta2^t.
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

/// AdamW's second moments for such means, with the bias: `correction` times row mean times column mean over the mean of
/// the row means.
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
