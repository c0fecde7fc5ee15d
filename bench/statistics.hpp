#pragma once

#include <algorithm>
#include <vector>

namespace pulse_bench {

/// The middle value, the upper one of two; `values` is not empty.
[[nodiscard]] inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Half the distance between the quartiles, in per cent of the median.
[[nodiscard]] inline double spread(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return 50 * (values[values.size() * 3 / 4] - values[values.size() / 4]) / median(values);
}

} // namespace pulse_bench
