#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/schedule/improve/gap_filler.hpp>
#include <pulse/schedule/improve/sequence_graph.hpp>
#include <pulse/schedule/improve/sequence_state.hpp>

namespace pulse::detail {

/// Monotone justification (Valls, Ballestin, Quintanilla, 2005, kept monotone): in order of start every instance moves
/// to the earliest gap that dependencies, microbatch order and memory allow; then the same from the end; repeats until
/// a round gains nothing or `go_on` returns false. Never ends later than `sequences`, which must not deadlock and must
/// stay within memory.
[[nodiscard]] inline std::vector<std::vector<int>> justify(
    const sequence_graph& graph, std::vector<std::vector<int>> sequences, int most_rounds = 10,
    const std::function<bool()>& go_on = [] { return true; }) {
    const sequence_graph turned = mirrored(graph);
    const auto turn = [&](std::vector<std::vector<int>>& lists) {
        for (auto& list : lists) {
            std::reverse(list.begin(), list.end());
            for (int& x : list) { x = graph.flipped(x); }
        }
    };
    sequence_state here{graph};
    sequence_state there{turned};
    gap_filler early{graph, false};
    gap_filler late{turned, true};
    constexpr double never = std::numeric_limits<double>::infinity();
    double reached = -1;
    for (int round = 0; round != most_rounds && go_on(); ++round) {
        if (!here.assign(sequences)) { return sequences; }
        if (reached >= 0 && !(here.makespan_us() < reached * (1 - 1e-12))) { break; }
        reached = here.makespan_us();
        if (early.fill(here.order()) == never) { break; }
        auto moved = early.sequences();
        turn(moved);
        if (!there.assign(moved) || late.fill(there.order()) == never) { break; }
        moved = late.sequences();
        turn(moved);
        if (!here.assign(moved) || here.makespan_us() > reached) { break; }
        sequences = std::move(moved);
    }
    return sequences;
}

} // namespace pulse::detail
