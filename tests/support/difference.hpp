#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace pulse::test {

/// How far values are from the wanted ones.
struct difference {
    double worst{};
    double greatest{}; ///< magnitude of the wanted values

    [[nodiscard]] double relative() const { return worst / greatest; }
};

/// `worst` is NaN if any difference is, or if the sizes differ.
template <class A, class B>
[[nodiscard]] difference difference_of(const std::vector<A>& got, const std::vector<B>& wanted) {
    if (got.size() != wanted.size()) { return {std::numeric_limits<double>::quiet_NaN(), 0.0}; }
    difference found;
    for (std::size_t i = 0; i != got.size(); ++i) {
        const double off = std::abs(static_cast<double>(got[i]) - static_cast<double>(wanted[i]));
        found.worst = off <= found.worst ? found.worst : off;
        found.greatest = std::max(found.greatest, std::abs(static_cast<double>(wanted[i])));
    }
    return found;
}

} // namespace pulse::test
