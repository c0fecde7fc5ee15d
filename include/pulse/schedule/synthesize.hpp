#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <pulse/schedule/bound.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/list_scheduler.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/search_budget.hpp>
#include <pulse/schedule/sequence_search.hpp>
#include <pulse/schedule/sequence_state.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/validate.hpp>

namespace pulse {

namespace detail {

/// One synthesis: the incumbent, and the phases that try to beat it.
class synthesizer {
public:
    synthesizer(const schedule_problem& problem, schedule_bound bound, const search_limit& limit,
                const std::function<void(const synthesis_progress&)>& progress) :
        problem_{&problem},
        index_{index_problem(problem)}, graph_{make_sequence_graph(problem, index_)}, bound_{std::move(bound)},
        budget_{limit}, progress_{&progress}, walk_{graph_} {
        require_room(profile_memory(problem, index_));
    }

    /// Takes a schedule of the problem when it is one and is better.
    void take(const schedule& known) {
        if (!is_valid(*problem_, known)) { return; }
        offer(known);
    }

    /// Priority rules, forward-backward improvement, a walk over priorities.
    void run_lists(const list_options& options) {
        if (done()) { return; }
        list_search lists{*problem_, options, bound_};
        const std::int64_t work = 4 * graph_.instances();
        offer(lists.search([&] { return budget_.spend(work) && budget_.look(); }).order);
    }

    /// Annealing of the device sequences, in slices that grow, until the limit.
    void run_walks() {
        random_numbers random{};
        std::int64_t moves = 20000;
        const double warm[] = {3, 1, 10, 2};
        for (std::size_t round = 0; !done(); ++round) {
            walk_.take(sequences_);
            const double mean = walk_.mean_us();
            (void)walk_.anneal({warm[round % 4] * mean, 0.1 * mean, moves}, bound_.makespan_us, random, budget_);
            adopt();
            moves += moves / 2;
            if (graph_.instances() < 2 || mean == 0) { break; }
        }
    }

    [[nodiscard]] bool done() const noexcept { return proved() || budget_.over(); }
    [[nodiscard]] bool proved() const noexcept { return makespan_ <= bound_.makespan_us * (1 + 1e-12); }

    [[nodiscard]] synthesis result() const {
        return {best_, makespan_, bound_.makespan_us, budget_.nodes(), budget_.seconds(), proved()};
    }

private:
    void offer(const schedule& found) {
        const double makespan = found.makespan_us();
        if (!(makespan < makespan_)) { return; }
        makespan_ = makespan;
        best_ = found;
        sequences_.assign(found.devices.size(), {});
        for (std::size_t d = 0; d != found.devices.size(); ++d) {
            for (const auto& p : found.devices[d]) {
                sequences_[d].push_back(index_.op_of({p.op, p.stage}) * index_.microbatches + p.microbatch);
            }
        }
        report();
    }

    void report() const {
        if (*progress_) { (*progress_)({budget_.seconds(), makespan_, bound_.makespan_us}); }
    }

    /// Takes over what the walk found.
    void adopt() {
        if (!(walk_.best_us() < makespan_)) { return; }
        sequence_state timed{graph_};
        timed.assign(walk_.best());
        schedule found{};
        for (const auto& sequence : timed.sequences()) {
            found.devices.emplace_back();
            for (const int x : sequence) {
                const stage_pass p = index_.pass_of(x / index_.microbatches);
                found.devices.back().push_back({p.op, p.stage, x % index_.microbatches, timed.start(x), timed.end(x)});
            }
        }
        offer(found);
    }

    const schedule_problem* problem_;
    indexed_problem index_;
    sequence_graph graph_;
    schedule_bound bound_;
    search_budget budget_;
    const std::function<void(const synthesis_progress&)>* progress_;
    sequence_search walk_;
    schedule best_{};
    std::vector<std::vector<int>> sequences_{};
    double makespan_{std::numeric_limits<double>::infinity()};
};

} // namespace detail

/// Goes on from a schedule: local search on the device sequences until the limit, or until the bound is met. The result
/// is never worse than `incumbent`, and `bound.makespan_us` may have been raised by a proof.
///
/// Throws input_error when `incumbent` is not a schedule of `problem`.
[[nodiscard]] inline synthesis improve_schedule(const schedule_problem& problem, const schedule_bound& bound,
                                                const schedule& incumbent, const search_limit& limit,
                                                const std::function<void(const synthesis_progress&)>& progress = {}) {
    validate(problem, incumbent);
    detail::synthesizer run{problem, bound, limit, progress};
    run.take(incumbent);
    run.run_walks();
    return run.result();
}

/// The best schedule that can be found within the limit, and how far it may be from the optimum.
///
/// The bound first; then priority rules, and annealing of the device sequences until the limit, a stop request, or
/// until the bound is met. Whichever of `known` is a schedule of the problem is taken into account: the result is never
/// worse. One node is a list schedule or a swap. With a limit of nodes alone the result depends on the input only.
///
/// Throws infeasible_error, naming the device and the bytes, when and only when a device cannot hold one microbatch
/// that runs alone; input_error for an ill-formed problem.
[[nodiscard]] inline synthesis synthesize(const schedule_problem& problem, const synthesis_options& options = {},
                                          std::span<const schedule> known = {}) {
    detail::synthesizer run{problem, bound_schedule(problem), options.limit, options.progress};
    for (const auto& k : known) { run.take(k); }
    run.run_lists({});
    run.run_walks();
    return run.result();
}

} // namespace pulse
