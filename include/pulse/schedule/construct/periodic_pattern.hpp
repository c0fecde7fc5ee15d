#pragma once

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

#include <pulse/schedule/indexed_problem.hpp>

namespace pulse::detail {

/// A steady state: every operation of microbatch k starts at start[op] + k x period, microseconds.
struct periodic_pattern {
    double period_us{};
    std::vector<double> start{};
};

/// The instances of every device for all microbatches, by start; an instance is op * microbatches + microbatch. Passes
/// of no duration may come in an order that no schedule has, since rounding decides between equal starts.
[[nodiscard]] inline std::vector<std::vector<int>> unroll(const indexed_problem& index,
                                                          const periodic_pattern& pattern) {
    const auto key = [&](int x) {
        const auto op = static_cast<std::size_t>(x / index.microbatches);
        const int k = x % index.microbatches;
        const int rank = alone_rank(index.pass_of(static_cast<int>(op)), index.stages);
        // a pass of no duration comes before those that start with it
        return std::tuple{pattern.start[op] + k * pattern.period_us, index.duration[op] > 0, rank, k};
    };
    std::vector<std::vector<int>> out(index.on_device.size());
    for (std::size_t d = 0; d != out.size(); ++d) {
        for (const int op : index.on_device[d]) {
            for (int k = 0; k != index.microbatches; ++k) { out[d].push_back(op * index.microbatches + k); }
        }
        std::sort(out[d].begin(), out[d].end(), [&](int a, int b) { return key(a) < key(b); });
    }
    return out;
}

} // namespace pulse::detail
