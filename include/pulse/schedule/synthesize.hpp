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
#include <pulse/schedule/justify.hpp>
#include <pulse/schedule/list_engine.hpp>
#include <pulse/schedule/list_scheduler.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/periodic_pattern.hpp>
#include <pulse/schedule/periodic_search.hpp>
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
        budget_{limit}, progress_{&progress}, walk_{graph_}, timed_{graph_}, memory_{profile_memory(problem, index_)} {
        require_room(memory_);
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
        const std::int64_t work = 40 * graph_.instances();
        std::int64_t left = 20'000'000;
        offer(lists.search([&] { return budget_.spend(work) && budget_.look() && (left -= work) > 0; }).order);
    }

    /// Patterns of several periods, unrolled and as priorities: shorter periods while they stay within memory, longer
    /// ones until they do.
    void run_patterns(std::int64_t moves) {
        double load = 0;
        for (int d = 0; d != index_.devices; ++d) { load = std::max(load, index_.load_us(d)); }
        if (load == 0 || index_.microbatches < 3) { return; }
        const auto fits = [&](double factor) {
            if (done()) { return true; }
            periodic_search search{*problem_, index_, load * factor};
            search.anneal(5 * search.mean_us(), 0.2 * search.mean_us(), moves, random_, budget_);
            if (search.excess() == 0) { offer(unroll(index_, search.best())); }
            offer_as_priorities(search.best());
            return search.excess() == 0;
        };
        if (fits(1.02)) {
            (void)(fits(1) && fits(1.005));
        } else {
            (void)(fits(1.05) || fits(1.1) || fits(1.2) || fits(1.4));
        }
    }

    /// Annealing of the device sequences, in slices that grow, until the limit: the whole step where it is short, else
    /// mostly parts of it, beginning and end above all.
    void run_walks() {
        const std::int64_t count = graph_.instances();
        std::int64_t work = std::max<std::int64_t>(3'000'000, 900 * count);
        const double warm[] = {3, 3, 1, 10, 3};
        const double mean = walk_.mean_us();
        if (mean == 0) { return; }
        const bool long_step = count > 400;
        for (std::size_t round = 0; !done(); ++round) {
            const bool whole = !long_step || round % 5 == 4;
            const bool other = whole && round % 2 == 1 && pool_.size() > 1;
            if (!walk_.take(other ? pool_[(round / 2) % pool_.size()].second : sequences_)) { break; }
            cooling plan{warm[round % 5] * mean, 0.1 * mean, work};
            if (!whole) {
                plan.warm_us = 3 * mean;
                const double share = std::min(1.0, 400.0 / static_cast<double>(count) * (0.5 + random_.unit()));
                plan.from = round % 5 == 0 ? 0.0 : round % 5 == 1 ? 1 - share : random_.unit() * (1 - share);
                plan.to = std::min(1.0, plan.from + share);
            }
            (void)walk_.anneal(plan, bound_.makespan_us, random_, budget_);
            const double before = makespan_;
            offer(walk_.best());
            if (whole && makespan_ < before) { run_justification(); }
            if (!budget_.spend(1)) { break; }
            if (whole) { work += work / 4; }
        }
    }

    /// Everything as early as it can be: never longer, and what it gains the walks start from.
    void run_justification() {
        if (proved() || sequences_.empty()) { return; }
        offer(justify(graph_, sequences_, graph_.instances() > 10000 ? 2 : 10));
    }

    [[nodiscard]] bool done() const noexcept { return proved() || budget_.over(); }
    [[nodiscard]] bool proved() const noexcept { return makespan_ <= bound_.makespan_us * (1 + 1e-12); }

    [[nodiscard]] synthesis result() const {
        return {best_, makespan_, bound_.makespan_us, budget_.nodes(), budget_.seconds(), proved()};
    }

private:
    void offer(const schedule& found) {
        std::vector<std::vector<int>> sequences(found.devices.size());
        for (std::size_t d = 0; d != found.devices.size(); ++d) {
            for (const auto& p : found.devices[d]) {
                sequences[d].push_back(index_.op_of({p.op, p.stage}) * index_.microbatches + p.microbatch);
            }
        }
        remember(found.makespan_us(), sequences);
        if (found.makespan_us() < makespan_) { replace(found, std::move(sequences)); }
    }

    void offer(const std::vector<std::vector<int>>& sequences) {
        if (!timed_.assign(sequences) || timed_.excess() > 0) { return; }
        remember(timed_.makespan_us(), sequences);
        if (!(timed_.makespan_us() < makespan_)) { return; }
        schedule found{};
        for (const auto& sequence : sequences) {
            found.devices.emplace_back();
            for (const int x : sequence) {
                const stage_pass p = index_.pass_of(x / index_.microbatches);
                found.devices.back().push_back(
                    {p.op, p.stage, x % index_.microbatches, timed_.start(x), timed_.end(x)});
            }
        }
        replace(found, sequences);
    }

    /// The pattern as priorities of the list engine, which stays within memory by itself.
    void offer_as_priorities(const periodic_pattern& pattern) {
        std::vector<double> key{};
        for (const double start : pattern.start) {
            for (int k = 0; k != index_.microbatches; ++k) { key.push_back(start + k * pattern.period_us); }
        }
        for (const double delay : {0.0, 0.5, 1.0}) {
            if (done()) { return; }
            const auto run = run_list(index_, memory_, key, bound_.tail, {delay, 0});
            offer(run.order);
            (void)budget_.spend(4 * graph_.instances());
        }
    }

    void replace(const schedule& found, std::vector<std::vector<int>> sequences) {
        makespan_ = found.makespan_us();
        best_ = found;
        sequences_ = std::move(sequences);
        report();
    }

    /// Keeps the best few as places to start from.
    void remember(double makespan, const std::vector<std::vector<int>>& sequences) {
        const auto place =
            std::lower_bound(pool_.begin(), pool_.end(), makespan, [](const auto& a, double b) { return a.first < b; });
        if (place != pool_.end() && place->first == makespan) { return; }
        pool_.insert(place, {makespan, sequences});
        if (pool_.size() > 4) { pool_.pop_back(); }
    }

    void report() const {
        if (*progress_) { (*progress_)({budget_.seconds(), makespan_, bound_.makespan_us}); }
    }

    const schedule_problem* problem_;
    indexed_problem index_;
    sequence_graph graph_;
    schedule_bound bound_;
    search_budget budget_;
    const std::function<void(const synthesis_progress&)>* progress_;
    sequence_search walk_;
    sequence_state timed_;
    memory_profile memory_;
    random_numbers random_{};
    std::vector<std::pair<double, std::vector<std::vector<int>>>> pool_{};
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
    run.run_justification();
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
    run.run_patterns(50000);
    run.run_justification();
    run.run_walks();
    run.run_justification();
    return run.result();
}

} // namespace pulse
