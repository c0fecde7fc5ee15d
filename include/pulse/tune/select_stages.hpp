#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/timed_orders.hpp>

namespace pulse::detail {

/// The order of another plan, each pass as early as the costs of a problem allow.
[[nodiscard]] constexpr schedule retimed(const schedule_problem& problem, const schedule& order) {
    device_orders orders(order.devices.size());
    for (std::size_t d = 0; d != orders.size(); ++d) {
        for (const timed_pass& p : order.devices[d]) { orders[d].push_back({p.op, p.stage, p.microbatch}); }
    }
    return timed_from_orders(problem, orders);
}

/// Betters `best`, an evaluated candidate, by other stages to recompute: those that `choose(order)` takes for an order,
/// as flags, empty where nothing fits. `evaluate(flags, order)` gives the candidate with these, or none; its order may
/// need fewer, and so it goes on while that changes anything, at most `rounds` times.
template <class Evaluated, class Choose, class Evaluate>
constexpr void select_stages(Evaluated& best, schedule order, int rounds, const Choose& choose,
                             const Evaluate& evaluate) {
    std::vector<char> before{};
    for (int round = 0; round != rounds; ++round) {
        std::vector<char> flags = choose(order);
        if (flags.empty() || flags == before) { return; }
        std::optional<Evaluated> found = evaluate(flags, order);
        if (!found) { return; }
        before = std::move(flags);
        order = found->planned.order;
        if (found->planned.predicted.step_us < best.planned.predicted.step_us) { best = *std::move(found); }
    }
}

} // namespace pulse::detail
