#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/prove/window_propagation.hpp>
#include <pulse/schedule/prove/window_state.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/search_budget.hpp>
#include <pulse/schedule/timed_orders.hpp>
#include <pulse/schedule/validate.hpp>

namespace pulse::detail {

/// The result of searching a set of schedules.
enum class window_outcome : std::uint8_t {
    refuted, ///< it has no schedule that meets the cutoff
    found,   ///< it has one
    open,    ///< a limit ended the search
};

/// The schedule of a state in which every order is settled, with every pass as early as possible. Throws input_error
/// when the orders deadlock.
[[nodiscard]] constexpr schedule settled_schedule(const schedule_problem& problem, const window_problem& facts,
                                                  const window_state& state) {
    device_orders orders{};
    const int m = facts.index.microbatches;
    for (const auto& ops : facts.index.on_device) {
        std::vector<timed_pass> passes(ops.size() * static_cast<std::size_t>(m));
        for (const int b : ops) {
            const stage_pass p = facts.index.pass_of(b);
            for (int l = 0; l != m; ++l) {
                int before = 0;
                for (const int a : ops) { before += state.surely_before(facts, a, b, l); }
                passes[static_cast<std::size_t>(before)] = {p.op, p.stage, l};
            }
        }
        orders.push_back(std::move(passes));
    }
    return timed_from_orders(problem, orders);
}

/// Depth-first search over the orders that a window_state leaves open: settles the pair whose two orders have the least
/// room left (Smith and Cheng, 1993), both ways, and narrows the windows after each.
class window_search {
public:
    /// Solves a narrowed state with few open pairs outside the search; `open` hands it back.
    using part_solver = std::function<window_outcome(const window_state&, std::size_t open_pairs, schedule& found)>;

    window_search(const schedule_problem& problem, const window_problem& facts, part_solver solve_part = {}) :
        problem_{&problem}, facts_{&facts}, propagator_{facts}, solve_part_{std::move(solve_part)} {}

    /// Searches `state` with at most `most_nodes` branches, at least one; puts a schedule that meets the state's cutoff
    /// into `found`.
    window_outcome run(window_state state, std::int64_t most_nodes, search_budget& budget, schedule& found) {
        std::int64_t left = most_nodes;
        out_of_nodes_ = false;
        std::vector<window_state> stack{};
        stack.push_back(std::move(state));
        const std::size_t bytes = stack.front().start.size() * 16 + stack.front().ahead.size() * sizeof(int);
        while (!stack.empty()) {
            window_state now = std::move(stack.back());
            stack.pop_back();
            if (!budget.spend(static_cast<std::int64_t>(bytes)) || stack.size() * bytes > most_bytes) {
                return window_outcome::open;
            }
            if (!propagator_.narrow(now)) { continue; }
            const choice pair = tightest_pair(now);
            if (pair.open == 0) {
                if (!meets_cutoff(now, found)) { continue; }
                return window_outcome::found;
            }
            if (--left <= 0) {
                out_of_nodes_ = true;
                return window_outcome::open;
            }
            if (solve_part_) {
                const auto outcome = solve_part_(now, pair.open, found);
                if (outcome == window_outcome::found) { return outcome; }
                if (outcome == window_outcome::refuted) { continue; }
            }
            // Try the order with more room first.
            window_state other = now;
            const bool forward = propagator_.settle(now, pair.a, pair.k, pair.b, pair.l);
            const bool backward = propagator_.settle(other, pair.b, pair.l, pair.a, pair.k);
            if (pair.roomy) {
                if (backward) { stack.push_back(std::move(other)); }
                if (forward) { stack.push_back(std::move(now)); }
            } else {
                if (forward) { stack.push_back(std::move(now)); }
                if (backward) { stack.push_back(std::move(other)); }
            }
        }
        return window_outcome::refuted;
    }

    /// Whether the last run ended only because it ran out of its own nodes.
    [[nodiscard]] bool out_of_nodes() const noexcept { return out_of_nodes_; }

private:
    /// Whether the settled orders of `state` form a schedule that meets its cutoff.
    [[nodiscard]] bool meets_cutoff(const window_state& state, schedule& found) const {
        schedule timed{};
        try {
            timed = settled_schedule(*problem_, *facts_, state);
        } catch (const input_error&) {
            return false; // passes that take no time may wait for each other inside their windows
        }
        if (timed.makespan_us() > state.cutoff_us || !is_valid(*problem_, timed)) { return false; }
        found = std::move(timed);
        return true;
    }

    /// With more, the states that wait for their turn would not fit into memory.
    static constexpr std::size_t most_bytes = std::size_t{1} << 28U;

    struct choice {
        int a{};
        int k{};
        int b{};
        int l{};
        /// a before b leaves more room than b before a.
        bool roomy{};
        std::size_t open{};
    };

    [[nodiscard]] choice tightest_pair(const window_state& state) const {
        choice out{};
        double least = std::numeric_limits<double>::infinity();
        const auto& facts = *facts_;
        for (const auto& ops : facts.index.on_device) {
            for (const int a : ops) {
                for (const int b : ops) {
                    if (a >= b) { continue; }
                    const double both = facts.duration(a) + facts.duration(b);
                    for (int l = 0; l != facts.index.microbatches; ++l) {
                        const int to = state.perhaps_before(facts, a, b, l);
                        for (int k = state.surely_before(facts, a, b, l); k < to; ++k) {
                            const double one = state.due[facts.at(b, l)] - state.start[facts.at(a, k)] - both;
                            const double two = state.due[facts.at(a, k)] - state.start[facts.at(b, l)] - both;
                            const double less = std::max(0.0, std::min(one, two));
                            const double more = std::max(0.0, std::max(one, two));
                            // less / sqrt(less / more); the second term prefers the tighter of two equal pairs
                            const double score = std::sqrt(less * more) + 1e-3 * more;
                            ++out.open;
                            if (score < least) {
                                least = score;
                                out = {a, k, b, l, one >= two, out.open};
                            }
                        }
                    }
                }
            }
        }
        return out;
    }

    const schedule_problem* problem_;
    const window_problem* facts_;
    window_propagator propagator_;
    part_solver solve_part_;
    bool out_of_nodes_{};
};

} // namespace pulse::detail
