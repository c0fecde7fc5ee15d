#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/schedule/baselines/placed.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/timed_orders.hpp>

namespace pulse {

namespace detail {

/// Microbatches that a chunk takes in a row: the least number from P on whose last group is empty or has at least P, as
/// Megatron-LM requires. M itself always qualifies.
[[nodiscard]] constexpr int interleaved_group(int devices, int microbatches) {
    int group = devices;
    while (microbatches % group != 0 && microbatches % group < devices) { ++group; }
    return group;
}

} // namespace detail

/// Interleaved 1F1B (Narayanan et al., 2021; Megatron-LM): v chunks on a device take turns in groups of P microbatches;
/// device d runs 2(P-1-d) + (v-1)P forwards of a chunk to warm up, then alternates one forward and one backward, then
/// runs the remaining backwards.
///
/// Where M is not a multiple of P, the groups are larger, as Megatron-LM allows. Split, W follows its B at once.
/// Ignores memory limits. Throws input_error unless the placement is interleaved and M >= P.
[[nodiscard]] constexpr schedule interleaved_one_f_one_b(const schedule_problem& problem) {
    detail::require_needs(problem, schedule_method::interleaved);
    const int devices = problem.devices;
    const int chunks = static_cast<int>(problem.stages.size()) / devices;
    const int count = problem.microbatches;
    if (count < devices) {
        throw input_error("interleaved: microbatches must be at least " + std::to_string(devices) +
                          ", the number of devices, not " + std::to_string(count));
    }
    const int group = detail::interleaved_group(devices, count);
    std::vector<std::pair<int, int>> turns{}; // chunk and microbatch, in the order of the forwards
    for (int from = 0; from < count; from += group) {
        for (int chunk = 0; chunk != chunks; ++chunk) {
            for (int k = from; k != std::min(from + group, count); ++k) { turns.emplace_back(chunk, k); }
        }
    }
    detail::device_orders orders(static_cast<std::size_t>(devices));
    for (int rank = 0; rank != devices; ++rank) {
        auto& order = orders[static_cast<std::size_t>(problem.stages[static_cast<std::size_t>(rank)].device)];
        const std::size_t all = turns.size();
        const auto ahead = static_cast<std::size_t>(2 * (devices - 1 - rank) + (chunks - 1) * group);
        for (std::size_t i = 0; i != all + std::min(ahead, all); ++i) {
            if (i < all) { order.push_back({pass::forward, turns[i].first * devices + rank, turns[i].second}); }
            if (i < std::min(ahead, all)) { continue; }
            const auto& turn = turns[i - std::min(ahead, all)];
            const int s = (chunks - 1 - turn.first) * devices + rank;
            order.push_back({pass::backward_input, s, turn.second});
            if (problem.split_backward) { order.push_back({pass::backward_weight, s, turn.second}); }
        }
    }
    return detail::timed_from_orders(problem, orders);
}

} // namespace pulse
