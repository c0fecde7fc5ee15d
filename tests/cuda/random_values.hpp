#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace pulse::test {

/// Doubles between `low` and `high`.
[[nodiscard]] inline std::vector<double> random_values(std::size_t n, std::uint32_t seed, double low = -2,
                                                       double high = 2) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(low, high);
    std::vector<double> values(n);
    for (double& value : values) { value = uniform(random); }
    return values;
}

} // namespace pulse::test
