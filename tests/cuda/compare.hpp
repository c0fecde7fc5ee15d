#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <device_array.hpp>

namespace pulse::test {

/// A tensor on the device that starts `offset` elements after an aligned address.
template <class T>
class tensor {
public:
    /// All values are NaN.
    explicit tensor(std::int64_t n, int offset = 0) :
        array_{static_cast<std::size_t>(n + offset)}, offset_{static_cast<std::size_t>(offset)} {}
    explicit tensor(const std::vector<double>& values, int offset = 0) :
        tensor(static_cast<std::int64_t>(values.size()), offset) {
        std::vector<double> behind(offset_, std::numeric_limits<double>::quiet_NaN());
        behind.insert(behind.end(), values.begin(), values.end());
        array_.upload(behind);
    }

    /// Null for an empty tensor: how operations take an absent source.
    [[nodiscard]] T* data() const { return array_.size() == offset_ ? nullptr : array_.data() + offset_; }
    [[nodiscard]] std::vector<double> download(const device_queue& after) const {
        const auto all = array_.download(after.stream());
        return {all.begin() + static_cast<std::ptrdiff_t>(offset_), all.end()};
    }
    /// Whether the memory before and after the values is untouched.
    [[nodiscard]] bool intact(const device_queue& after) const {
        const auto all = array_.download(after.stream());
        return array_.intact(after.stream()) &&
               std::all_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(offset_),
                           [](double v) { return std::isnan(v); });
    }

private:
    device_array<T> array_;
    std::size_t offset_;
};

/// Error bound of a sum of `terms` products, relative to the sum of their magnitudes: float sums in any order, plus
/// rounding of factors to TF32 if the policy allows it.
template <class P>
[[nodiscard]] double sum_error(std::int64_t terms) {
    return sum_error(static_cast<double>(terms)) + 0.5 * float_epsilon + (P::tensor_float ? 1.0 / 1024 : 0.0);
}

} // namespace pulse::test
