#pragma once

#include <algorithm>
#include <cmath>

namespace pulse_bench {

/// Geometric mean and worst of ratios.
struct ratio_summary {
    int count{};
    double log_sum{};
    double worst{};

    /// Ratios that are not positive are left out.
    void add(double ratio) {
        if (!(ratio > 0)) { return; }
        ++count;
        log_sum += std::log(ratio);
        worst = std::max(worst, ratio);
    }
    [[nodiscard]] double mean() const { return count == 0 ? 0.0 : std::exp(log_sum / count); }
};

} // namespace pulse_bench
