#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/bound/memory_bounds.hpp>
#include <pulse/schedule/improve/sequence_graph.hpp>
#include <pulse/schedule/improve/sequence_state.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/random_numbers.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/search_budget.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/validate.hpp>

namespace pulse::detail {

/// What the phases of one synthesis share: the problem, incumbent and bound, and the budget.
struct synthesis_state {
    /// Instances of every device, in order.
    using sequences = std::vector<std::vector<int>>;

    /// Computing the bound counts against the limit.
    synthesis_state(const schedule_problem& given, const synthesis_options& options) :
        budget{options.limit}, progress{&options.progress}, problem{without_idle_limits(given)}, index{index_problem(
                                                                                                     problem)},
        graph{make_sequence_graph(problem, index)}, bound{bound_schedule(problem)}, timed{graph}, memory{profile_memory(
                                                                                                      problem, index)} {
        require_room(memory);
    }
    // The searches refer to the graph.
    synthesis_state(const synthesis_state&) = delete;
    synthesis_state& operator=(const synthesis_state&) = delete;

    [[nodiscard]] bool proved() const noexcept { return makespan_us <= bound.makespan_us * (1 + 1e-9); }
    [[nodiscard]] bool done() const noexcept { return proved() || budget.over(); }

    /// Takes `known` when it is a shorter schedule of the problem.
    void take(const schedule& known) {
        if (is_valid(problem, known)) { offer(known); }
    }

    /// Raises the bound: no schedule is shorter than `lower_bound_us`, up to the rounding of sums.
    void raise_bound(double lower_bound_us) {
        const double raised = std::min(lower_bound_us, makespan_us);
        if (raised <= bound.makespan_us) { return; }
        bound.makespan_us = raised;
        report();
    }

    /// Takes a valid schedule, without checking it, when it is shorter.
    void offer(const schedule& found) {
        sequences of(found.devices.size());
        for (std::size_t d = 0; d != found.devices.size(); ++d) {
            for (const auto& p : found.devices[d]) { of[d].push_back(index.instance_of(p)); }
        }
        if (found.makespan_us() < makespan_us) { replace(found, std::move(of)); }
    }

    /// The same for sequences; ignores those that deadlock or exceed memory.
    void offer(const sequences& found) {
        if (!timed.assign(found) || timed.excess() > 0) { return; }
        if (!(timed.makespan_us() < makespan_us)) { return; }
        replace(to_schedule(index, found, timed.starts()), found);
    }

    [[nodiscard]] synthesis result() const {
        const double lower = std::min(bound.makespan_us, makespan_us); // sums are rounded
        return {best, makespan_us, lower, budget.nodes(), budget.seconds(), proved()};
    }

    search_budget budget;
    const std::function<void(const synthesis_progress&)>* progress;
    schedule_problem problem;
    indexed_problem index;
    sequence_graph graph;
    schedule_bound bound;
    sequence_state timed;
    memory_profile memory;
    random_numbers random{};
    schedule best{};
    sequences best_sequences{};
    double makespan_us{std::numeric_limits<double>::infinity()};

private:
    void replace(const schedule& found, sequences of) {
        makespan_us = found.makespan_us();
        best = found;
        best_sequences = std::move(of);
        report();
    }

    void report() const {
        const double lower = std::min(bound.makespan_us, makespan_us);
        if (*progress) { (*progress)({budget.seconds(), makespan_us, lower}); }
    }
};

} // namespace pulse::detail
