#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <pulse/cuda/precision.cuh>
#include <pulse/reference/tokens.hpp>

#include <device_array.hpp>

namespace pulse::test {

/// Operands of attention rounded to a scalar type, the results of the plain loops in double, and how far a policy's
/// rounding may move each result.
struct attention_case {
    attention_shape shape{};
    int batch{};
    std::vector<double> q{}, k{}, v{}, dout{};
    std::vector<double> o{}, lse{}, dq{}, dk{}, dv{};
    std::vector<double> o_bound{}, lse_bound{}, dq_bound{}, dk_bound{}, dv_bound{};

    [[nodiscard]] std::size_t queries() const { return static_cast<std::size_t>(batch) * shape.tokens * shape.width(); }
    [[nodiscard]] std::size_t keys() const { return static_cast<std::size_t>(batch) * shape.keys() * shape.width(); }
    [[nodiscard]] std::size_t rows() const { return static_cast<std::size_t>(batch) * shape.heads * shape.tokens; }
};

/// Draws operands from the normal distribution; q and k are `sharpness` times as large.
template <class T>
[[nodiscard]] attention_case draw_attention(const attention_shape& s, int batch, std::uint32_t seed,
                                            double sharpness = 1.0) {
    attention_case c{.shape = s, .batch = batch};
    std::mt19937 random(seed);
    const auto normal = [&](std::size_t n, double scale) {
        std::normal_distribution<double> draw{0.0, scale};
        std::vector<double> values(n);
        for (double& value : values) { value = draw(random); }
        return rounded<T>(values);
    };
    c.q = normal(c.queries(), sharpness);
    c.k = normal(c.keys(), sharpness);
    c.v = normal(c.keys(), 1.0);
    c.dout = normal(c.queries(), 1.0);
    return c;
}

/// Fills in results and bounds. With f the rounding of float: a sum of n products is off by about sqrt(n) f times the
/// sum of their magnitudes. A weight is off, relatively, by the errors of its score, of the log-sum-exp and of the
/// power, and by P's rounding where it becomes a factor. With `exact_scores`, scores have no error.
template <class P>
void solve_attention(attention_case& c, bool exact_scores = false) {
    using T = typename P::scalar;
    constexpr double f = rounding_error<float>;
    constexpr double out = rounding_error<T>;
    constexpr double factor = P::tensor_float ? rounding_error<__half> : out;     // of tensor-core factors
    constexpr double least = std::is_same_v<T, __half> ? 1.0 / (1 << 25) : 1e-36; // bound where steps are absolute
    constexpr double operand = P::tensor_float ? 2.0 * factor : 0.0;              // rounding of operands on reading
    const attention_shape& s = c.shape;
    const int size = s.head_size;
    const double scale = 1.0 / std::sqrt(static_cast<double>(size));
    reference::tokens<double> plain;
    c.o.resize(c.queries());
    c.dq.resize(c.queries());
    c.dk.resize(c.keys());
    c.dv.resize(c.keys());
    c.lse.resize(c.rows());
    plain.attention(s, c.batch, c.q.data(), c.k.data(), c.v.data(), c.o.data(), c.lse.data());
    // the backward pass starts from the stored o and lse
    const std::vector<double> o = rounded<T>(c.o);
    const std::vector<double> lse = rounded<float>(c.lse);
    plain.attention_backward(s, c.batch, c.q.data(), c.k.data(), c.v.data(), o.data(), lse.data(), c.dout.data(),
                             c.dq.data(), c.dk.data(), c.dv.data());
    const auto bound_of = [&](const std::vector<double>& values) {
        std::vector<double> bound(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) { bound[i] = out * std::abs(values[i]) + least; }
        return bound;
    };
    c.o_bound = bound_of(c.o);
    c.dq_bound = bound_of(c.dq);
    c.dk_bound = bound_of(c.dk);
    c.dv_bound = bound_of(c.dv);
    c.lse_bound.assign(c.rows(), 0.0);
    const auto sum = [&](int terms) { return (8 + 2 * std::sqrt(static_cast<double>(terms))) * f; };
    const double products = sum(size) + operand;
    std::vector<double> score(static_cast<std::size_t>(s.keys()));
    std::vector<double> score_error(score.size());
    for (int b = 0; b < c.batch; ++b) {
        for (int h = 0; h < s.heads; ++h) {
            for (int i = 0; i < s.tokens; ++i) {
                const std::size_t row = (static_cast<std::size_t>(b) * s.tokens + i) * s.width() + h * size;
                const auto other = [&](int j) {
                    return (static_cast<std::size_t>(b) * s.keys() + j) * s.width() + h * size;
                };
                const std::size_t number = (static_cast<std::size_t>(b) * s.heads + h) * s.tokens + i;
                double worst = 0.0;
                for (int j = 0; j < s.keys(); ++j) {
                    double product = 0.0;
                    double magnitude = 0.0;
                    for (int d = 0; d < size; ++d) {
                        product += c.q[row + d] * c.k[other(j) + d];
                        magnitude += std::abs(c.q[row + d] * c.k[other(j) + d]);
                    }
                    score[j] = scale * product;
                    // only the difference to the greatest score is rounded
                    score_error[j] = exact_scores ? 4 * f * (1 + std::abs(score[j] - c.lse[number]))
                                                  : products * scale * magnitude + 4 * f * std::abs(score[j]);
                    const double weight = std::exp(score[j] - c.lse[number]);
                    worst = std::max(worst, weight > 1e-9 ? score_error[j] : 0.0);
                }
                c.lse_bound[number] = worst + sum(s.keys()) + 8 * f * std::abs(c.lse[number]);
                double mean = 0.0;
                double mean_magnitude = 0.0;
                for (int d = 0; d < size; ++d) {
                    mean += c.dout[row + d] * o[row + d];
                    mean_magnitude += std::abs(c.dout[row + d] * o[row + d]);
                }
                for (int j = 0; j < s.keys(); ++j) {
                    const std::size_t at = other(j);
                    const double weight = std::exp(score[j] - c.lse[number]);
                    const double relative = std::expm1(std::min(score_error[j] + worst, 50.0));
                    const double forward = weight * (relative + factor + operand + sum(s.keys())) + least;
                    const double stored = 8 * f * (std::abs(lse[number]) + std::abs(score[j]));
                    const double backward =
                        weight * (std::expm1(std::min(score_error[j] + stored, 50.0)) + sum(s.tokens));
                    double dp = 0.0;
                    double dp_magnitude = 0.0;
                    for (int d = 0; d < size; ++d) {
                        dp += c.dout[row + d] * c.v[at + d];
                        dp_magnitude += std::abs(c.dout[row + d] * c.v[at + d]);
                    }
                    const double ds = weight * std::abs(dp - mean);
                    const double ds_error = weight * (products * dp_magnitude + sum(size) * mean_magnitude) +
                                            backward * (std::abs(dp) + std::abs(mean)) +
                                            ds * (factor + operand + 2 * sum(s.tokens + s.keys())) + least;
                    for (int d = 0; d < size; ++d) {
                        c.o_bound[row + d] += forward * std::abs(c.v[at + d]);
                        c.dv_bound[at + d] +=
                            (backward + weight * (factor + operand) + least) * std::abs(c.dout[row + d]);
                        c.dq_bound[row + d] += scale * ds_error * std::abs(c.k[at + d]);
                        c.dk_bound[at + d] += scale * ds_error * std::abs(c.q[row + d]);
                    }
                }
            }
        }
    }
}

/// The greatest error over its bound: above 1 is wrong; NaN counts as infinity.
[[nodiscard]] inline double worst_of(const std::vector<double>& found, const std::vector<double>& wanted,
                                     const std::vector<double>& bound) {
    double worst = found.size() == wanted.size() ? 0.0 : std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
        const double ratio = std::abs(found[i] - wanted[i]) / bound[i];
        if (!(ratio >= 0.0)) { return std::numeric_limits<double>::infinity(); }
        worst = std::max(worst, ratio);
    }
    return worst;
}

} // namespace pulse::test
