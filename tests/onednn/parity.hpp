#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/reference/backend.hpp>

namespace onednn_tests {

/// The plain loops in double.
using oracle = pulse::reference::backend<double>;

/// Values for both sides: the float values exactly, also in double.
struct tensor {
    std::vector<float> single{};
    std::vector<double> twice{};

    tensor() = default;
    explicit tensor(std::int64_t n, float value = std::numeric_limits<float>::quiet_NaN()) :
        single(static_cast<std::size_t>(n), value), twice(static_cast<std::size_t>(n), static_cast<double>(value)) {}

    [[nodiscard]] std::size_t size() const { return single.size(); }

    template <class T>
    [[nodiscard]] T* as() {
        if constexpr (std::is_same_v<T, float>) {
            return single.data();
        } else {
            return twice.data();
        }
    }
};

class source {
public:
    explicit source(unsigned seed) : engine_{seed} {}

    [[nodiscard]] tensor normal(std::int64_t n, double scale = 1.0, double shift = 0.0) {
        std::normal_distribution<double> draw{shift, scale};
        tensor made{n};
        for (std::size_t i = 0; i != made.size(); ++i) {
            made.single[i] = static_cast<float>(draw(engine_));
            made.twice[i] = static_cast<double>(made.single[i]);
        }
        return made;
    }
    [[nodiscard]] int between(int low, int high) { return std::uniform_int_distribution<int>{low, high}(engine_); }

private:
    std::mt19937 engine_;
};

/// The absolute values: running a linear operation on them bounds its rounding errors.
[[nodiscard]] inline tensor magnitudes(tensor t) {
    for (auto& v : t.single) { v = std::abs(v); }
    for (auto& v : t.twice) { v = std::abs(v); }
    return t;
}

/// Rounding of a sum of `terms` products in float, relative to the sum of their magnitudes.
[[nodiscard]] inline double rounding(double terms) {
    return (8.0 + 2.0 * std::sqrt(terms)) * 0.5 * static_cast<double>(std::numeric_limits<float>::epsilon());
}

/// Greatest of |single - twice| / (relative * bound) over all elements; above 1 is a failure, NaN counts as infinity.
[[nodiscard]] inline double worst(const tensor& t, const std::vector<double>& bound, double relative) {
    double found = 0.0;
    for (std::size_t i = 0; i != t.size(); ++i) {
        const double off = std::abs(static_cast<double>(t.single[i]) - t.twice[i]);
        const double ratio = off / (relative * bound[i] + 1e-30);
        if (std::isnan(ratio)) { return std::numeric_limits<double>::infinity(); }
        found = std::max(found, ratio);
    }
    return found;
}

/// The same with one bound for all elements: the greatest magnitude of the double values, but at least `least`.
[[nodiscard]] inline double worst(const tensor& t, double relative, double least = 1e-3) {
    double greatest = least;
    for (const double v : t.twice) { greatest = std::max(greatest, std::abs(v)); }
    return worst(t, std::vector<double>(t.size(), greatest), relative);
}

/// f'(0) by Richardson's extrapolation of central differences.
template <class F>
[[nodiscard]] double extrapolated_slope(F f) {
    constexpr double h = 1e-3;
    return (8.0 * (f(h) - f(-h)) - (f(2.0 * h) - f(-2.0 * h))) / (12.0 * h);
}

/// Checks `gradient` of the sum of forward()'s results weighted by `dy`, for each element of `x`.
template <class F>
void check_slopes(tensor& x, const tensor& gradient, const tensor& dy, F forward) {
    double off = 0.0;
    for (std::size_t i = 0; i != x.size(); ++i) {
        const double value = x.twice[i];
        const double expected = extrapolated_slope([&](double h) {
            x.twice[i] = value + h;
            const tensor y = forward();
            double sum = 0.0;
            for (std::size_t k = 0; k != y.size(); ++k) { sum += y.twice[k] * dy.twice[k]; }
            return sum;
        });
        x.twice[i] = value;
        const double difference = std::abs(gradient.twice[i] - expected);
        off = difference <= off ? off : difference;
    }
    CHECK(off < 1e-8);
}

} // namespace onednn_tests
