#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace pulse_bench {

/// The middle value, the upper one of two; `values` is not empty.
[[nodiscard]] inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// The value that a share `q` of the values does not exceed (nearest rank); `values` is not empty, 0 < q <= 1.
[[nodiscard]] inline double quantile(std::vector<double> values, double q) {
    const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size())));
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

/// Half the distance between the quartiles, in per cent of the median.
[[nodiscard]] inline double spread(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return 50 * (values[values.size() * 3 / 4] - values[values.size() / 4]) / median(values);
}

} // namespace pulse_bench
