#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <device_array.hpp>

namespace pulse::test {

/// Seeded numbers, as scalars of T hold them.
class source {
public:
    explicit source(unsigned seed) : engine_{seed} {}

    template <class T>
    [[nodiscard]] std::vector<double> normal(std::int64_t n, double scale = 1.0, double shift = 0.0) {
        std::normal_distribution<double> draw{shift, scale};
        std::vector<double> values(static_cast<std::size_t>(n));
        for (double& v : values) { v = draw(engine_); }
        return rounded<T>(values);
    }
    [[nodiscard]] int between(int low, int high) { return std::uniform_int_distribution<int>{low, high}(engine_); }

private:
    std::mt19937 engine_;
};

/// A tensor on the device that starts `offset` scalars behind an aligned address.
template <class T>
class tensor {
public:
    /// Poisoned.
    explicit tensor(std::int64_t n, int offset = 0) :
        array_{static_cast<std::size_t>(n + offset)}, offset_{static_cast<std::size_t>(offset)} {}
    explicit tensor(const std::vector<double>& values, int offset = 0) :
        tensor(static_cast<std::int64_t>(values.size()), offset) {
        std::vector<double> behind(offset_, std::numeric_limits<double>::quiet_NaN());
        behind.insert(behind.end(), values.begin(), values.end());
        array_.upload(behind);
    }

    /// Null for an empty tensor, as operations take a source that is not there.
    [[nodiscard]] T* data() const { return array_.size() == offset_ ? nullptr : array_.data() + offset_; }
    [[nodiscard]] std::vector<double> download(const device_queue& after) const {
        const auto all = array_.download(after.stream());
        return {all.begin() + static_cast<std::ptrdiff_t>(offset_), all.end()};
    }
    [[nodiscard]] bool intact(const device_queue& after) const { return array_.intact(after.stream()); }

private:
    device_array<T> array_;
    std::size_t offset_;
};

/// Half the distance between the smallest values of T that are not zero.
template <class T>
inline constexpr double least_step = std::is_same_v<T, __half> ? 1.0 / (1 << 25) : 1e-30;

inline constexpr double float_epsilon = 1.0 / (1 << 23);

/// Greatest of |got - wanted| / bound over all elements, where the bound is what rounding to T costs and `relative` of
/// `scale` for the arithmetic before it; above 1 is a failure, NaN counts as infinity.
template <class T>
[[nodiscard]] double worst(const std::vector<double>& got, const std::vector<double>& wanted, double relative,
                           double scale) {
    if (got.size() != wanted.size()) { return std::numeric_limits<double>::infinity(); }
    double found = 0.0;
    for (std::size_t i = 0; i != got.size(); ++i) {
        const double bound = 1.01 * rounding_error<T> * std::abs(wanted[i]) + relative * scale + least_step<T>;
        const double ratio = std::abs(got[i] - wanted[i]) / bound;
        if (std::isnan(ratio)) { return std::numeric_limits<double>::infinity(); }
        found = std::max(found, ratio);
    }
    return found;
}
/// The same with the greatest of the wanted magnitudes for scale.
template <class T>
[[nodiscard]] double worst(const std::vector<double>& got, const std::vector<double>& wanted, double relative) {
    double greatest = 1e-3;
    for (const double v : wanted) { greatest = std::max(greatest, std::abs(v)); }
    return worst<T>(got, wanted, relative, greatest);
}

using doubles = std::vector<double>;

[[nodiscard]] inline doubles magnitudes(doubles values) {
    for (double& v : values) { v = std::abs(v); }
    return values;
}

/// What a sum of `terms` products may be off, relative to the sum of their magnitudes: float sums in any order, and the
/// rounding of factors to TF32 where the policy allows it.
template <class P>
[[nodiscard]] double sum_error(std::int64_t terms) {
    const double sums = (8.0 + 2.0 * std::sqrt(static_cast<double>(terms))) * 0.5 * float_epsilon;
    return sums + (P::tensor_float ? 1.0 / 1024 : 0.0);
}

/// Greatest of |got - wanted| / bound over all elements; the bound is `error` of each element's `magnitude`, and a few
/// roundings to T of values as great as the greatest wanted. Above 1 is a failure, NaN counts as infinity.
template <class T>
[[nodiscard]] double worst_sum(const doubles& got, const doubles& wanted, const doubles& magnitude, double error) {
    if (got.size() != wanted.size() || got.size() != magnitude.size()) {
        return std::numeric_limits<double>::infinity();
    }
    double greatest = 0.0;
    for (const double v : wanted) { greatest = std::max(greatest, std::abs(v)); }
    double found = 0.0;
    for (std::size_t i = 0; i != got.size(); ++i) {
        const double bound = 3.0 * rounding_error<T> * greatest + error * magnitude[i] + 1e-30;
        const double ratio = std::abs(got[i] - wanted[i]) / bound;
        if (std::isnan(ratio)) { return std::numeric_limits<double>::infinity(); }
        found = std::max(found, ratio);
    }
    return found;
}

} // namespace pulse::test
