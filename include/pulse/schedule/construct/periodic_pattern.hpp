#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// A steady state: every operation of microbatch k starts at start[op] + k x period, microseconds.
struct periodic_pattern {
    double period_us{};
    std::vector<double> start{};
};

/// Bytes that the endless repetition of a pattern holds on each device at most.
///
/// At the start of an operation x a hold from b to e is alive for the microbatches j with t(b) + jT <= t(x) and
/// t(e) + jT >= t(x), since operations of a device do not overlap: with t = phase + wrap x T,
/// wrap(e) - wrap(b) - [phase(x) < phase(b)] + [phase(e) >= phase(x)] of them.
[[nodiscard]] inline std::vector<std::int64_t> pattern_peaks(const schedule_problem& problem,
                                                             const indexed_problem& index,
                                                             const periodic_pattern& pattern) {
    const auto n = static_cast<std::size_t>(index.ops());
    std::vector<double> phase(n, 0.0);
    std::vector<std::int64_t> wrap(n, 0);
    for (std::size_t o = 0; o != n; ++o) {
        const double turns = std::floor(pattern.start[o] / pattern.period_us);
        wrap[o] = static_cast<std::int64_t>(turns);
        phase[o] = pattern.start[o] - turns * pattern.period_us;
    }
    std::vector<std::int64_t> peaks(index.on_device.size(), 0);
    for (std::size_t d = 0; d != peaks.size(); ++d) {
        for (const int x : index.on_device[d]) {
            std::int64_t level = 0;
            for (const auto& h : problem.holds) {
                if (h.device != static_cast<int>(d)) { continue; }
                const auto b = static_cast<std::size_t>(index.op_of(h.begin));
                auto e = static_cast<std::size_t>(index.op_of(h.end));
                const auto also = static_cast<std::size_t>(index.op_of(h.also_end));
                if (pattern.start[also] > pattern.start[e]) { e = also; }
                const double at = phase[static_cast<std::size_t>(x)];
                level += h.bytes * (wrap[e] - wrap[b] - (at < phase[b] ? 1 : 0) + (phase[e] >= at ? 1 : 0));
            }
            peaks[d] = std::max(peaks[d], level);
        }
    }
    return peaks;
}

/// What every device runs for all microbatches, by start; an instance is op * microbatches + microbatch. Passes of no
/// length may come in an order that no schedule has, since rounding decides among equal starts.
[[nodiscard]] inline std::vector<std::vector<int>> unroll(const indexed_problem& index,
                                                          const periodic_pattern& pattern) {
    std::vector<int> rank(index.alone.size(), 0);
    for (std::size_t i = 0; i != index.alone.size(); ++i) {
        rank[static_cast<std::size_t>(index.alone[i])] = static_cast<int>(i);
    }
    const auto key = [&](int x) {
        const auto op = static_cast<std::size_t>(x / index.microbatches);
        const int k = x % index.microbatches;
        // what takes no time comes before what starts with it
        return std::tuple{pattern.start[op] + k * pattern.period_us, index.duration[op] > 0, rank[op], k};
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
