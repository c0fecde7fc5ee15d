#pragma once

#include <algorithm>
#include <cstddef>
#include <variant>
#include <vector>

#include <pulse/core/ids.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/skip_cache.hpp>

namespace pulse::detail {

PULSE_CONSTEXPR int most_in_flight(const step_model& model, const program& of_rank) {
    std::vector<int> held(static_cast<std::size_t>(model.edge_count()), 0);
    std::vector<op::stash> stashed{};
    int most = 0;
    for (const instruction& what : of_rank.instructions) {
        if (const auto* s = std::get_if<op::stash>(&what)) {
            stashed.push_back(*s);
            most = std::max(most, ++held[static_cast<std::size_t>(index_of(s->edge))]);
        } else if (const auto* r = std::get_if<op::release>(&what)) {
            if (r->buffer.kind != buffer_kind::activation) { continue; }
            const auto ends = [&](const op::stash& one) {
                return one.microbatch == r->buffer.microbatch && model.edge(index_of(one.edge)).from == r->buffer.index;
            };
            for (const op::stash& one : stashed) {
                held[static_cast<std::size_t>(index_of(one.edge))] -= ends(one) ? 1 : 0;
            }
            stashed.erase(std::remove_if(stashed.begin(), stashed.end(), ends), stashed.end());
        }
    }
    return most;
}

} // namespace pulse::detail
