#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/bound/device_bounds.hpp>
#include <pulse/schedule/bound/tighten_bound.hpp>
#include <pulse/schedule/construct/list_engine.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/construct/periodic_pattern.hpp>
#include <pulse/schedule/construct/periodic_search.hpp>
#include <pulse/schedule/improve/justification_search.hpp>
#include <pulse/schedule/improve/justify.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/prove/certificate.hpp>
#include <pulse/schedule/prove/window_bound.hpp>
#include <pulse/schedule/prove/window_propagation.hpp>
#include <pulse/schedule/prove/window_state.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/search_budget.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/synthesis_state.hpp>
#include <pulse/schedule/time_grain.hpp>
#include <pulse/schedule/tuned.hpp>

namespace pulse::detail {

/// The phases of a synthesis, which close the gap between incumbent and bound.
class synthesizer {
public:
    synthesizer(const schedule_problem& problem, const synthesis_options& options, const proof_of& prove) :
        without_{&options.without}, prove_{&prove}, s_{problem, options}, shifts_{s_.graph} {}

    [[nodiscard]] synthesis_state& state() noexcept { return s_; }
    [[nodiscard]] bool leaves_out(std::string_view name) const { return without_->contains(name); }
    [[nodiscard]] bool always() const { return true; }
    [[nodiscard]] bool unproved() const { return !s_.proved(); }

    /// Sets what the next phase may use: a part of the remaining limit, and at most `nodes` nodes.
    void begin_turn(double part, std::int64_t nodes) {
        part_ = part;
        nodes_ = nodes;
        s_.budget.begin_turn(part, nodes);
    }

    /// Offers the published orders that fit, except those that would take too large a share of the time to build.
    void run_known_orders() {
        const auto go_on = [this](std::int64_t passes) {
            const double seconds = tuned::known_order_seconds * static_cast<double>(passes);
            return !s_.done() && s_.budget.look() && seconds < tuned::known_orders_share * s_.budget.turn(1).seconds;
        };
        for_each_known_order(s_.problem, go_on, [this](const schedule& order) {
            (void)s_.budget.spend(list_work());
            s_.take(order);
        });
    }

    [[nodiscard]] bool wants_lists() const { return !s_.done() || s_.best_sequences.empty(); }
    /// Runs priority rules, forward-backward improvement and a walk over priorities.
    void run_lists() {
        rule_search lists{s_.problem, {}, s_.bound};
        const std::int64_t work = list_work();
        std::int64_t left =
            long_step() && s_.memory.limited() ? tuned::list_search_work_of_long_limited : tuned::list_search_work;
        s_.offer(lists.search([&] { return s_.budget.spend(work) && s_.budget.look() && (left -= work) > 0; }).order);
    }

    [[nodiscard]] bool can_raise_devices() const { return !s_.done() && s_.graph.microbatches <= 65535; }
    /// Raises the bound by single devices.
    void run_devices() {
        if (!devices_) { devices_.emplace(s_.problem, s_.bound); }
        s_.raise_bound(devices_->raise(s_.bound.makespan_us, s_.makespan_us,
                                       [this] { return s_.budget.spend(tuned::device_bound_work); }));
    }

    /// Whether searches over states have nothing left to try for this incumbent.
    [[nodiscard]] bool tightened() const { return s_.proved() || s_.makespan_us == tightened_us_ || s_.budget.ended(); }
    [[nodiscard]] bool can_tighten() const { return !tightened(); }
    /// Searches over states: they raise the bound and at times shorten the incumbent.
    void run_states() {
        double part = part_ * std::pow(tuned::fruitless, fruitless_);
        if (s_.memory.limited() && long_step() && device_states(s_.index) > tuned::too_many_states) {
            part *= tuned::too_many_states_share;
        }
        const double makespan = s_.makespan_us;
        const double bound = s_.bound.makespan_us;
        const auto limit = s_.budget.turn(part, nodes_);
        const tightened_bound proof = tighten_bound(s_.problem, s_.bound, s_.makespan_us, limit);
        s_.budget.count(proof.nodes);
        if (!proof.better.devices.empty()) { s_.take(proof.better); }
        s_.raise_bound(proof.lower_bound_us);
        if (proof.finished) { tightened_us_ = s_.makespan_us; }
        // Large problems with too many states gain more from search.
        const bool gained = s_.makespan_us != makespan || s_.bound.makespan_us != bound;
        fruitless_ = gained || !long_step() ? 0 : fruitless_ + 1;
    }

    /// On problems with many instances, windows take long and find nothing.
    [[nodiscard]] bool has_few_windows() const {
        return !s_.done() && s_.graph.instances() <= tuned::most_window_instances;
    }
    /// Raises the bound by windows alone.
    void run_windows() {
        const window_problem facts = window_problem_of(s_.problem);
        window_propagator propagator{facts};
        const double grain = time_grain_us(s_.problem, s_.makespan_us);
        refute_by_windows(
            facts, s_.bound, propagator, s_.bound.makespan_us, cutoff_below(s_.makespan_us, grain),
            std::max(grain, 1e-6 * s_.makespan_us),
            [this] { return s_.budget.spend(tuned::window_work * s_.graph.instances()) && s_.budget.look(); },
            [&](double cutoff) { s_.raise_bound(least_after(cutoff, grain)); });
    }

    /// A step with no more microbatches than devices has no steady state.
    [[nodiscard]] bool has_steady_state() const {
        return !s_.done() && s_.index.microbatches > std::max(2, s_.index.devices);
    }
    /// Tries patterns of several periods, unrolled, justified and as list priorities: shorter periods while they fit
    /// into memory, else longer ones until one fits, then two between that one and the last that did not.
    void run_patterns() {
        if (try_pattern(tuned::period)) {
            (void)std::all_of(tuned::shorter_periods.begin(), tuned::shorter_periods.end(),
                              [this](double factor) { return try_pattern(factor); });
            return;
        }
        double low = tuned::period;
        for (const double high : tuned::longer_periods) {
            if (try_pattern(high)) {
                const double middle = low + (high - low) / 2;
                const bool fits = try_pattern(middle);
                (void)try_pattern(fits ? (low + middle) / 2 : (middle + high) / 2);
                return;
            }
            low = high;
        }
    }

    /// Moves every pass of the incumbent as early as it can be; never makes it longer.
    void run_justification() { s_.offer(justified(s_.best_sequences)); }

    /// Iterated justification of parts of the incumbent, in slices of work.
    void run_shifts() {
        const double warm_us = tuned::warm_shifts * shifts_.mean_us();
        const std::int64_t work = std::max(tuned::shifts_work, tuned::shifts_work_of_instance * s_.graph.instances());
        while (!s_.done()) {
            if (shifts_.best_us() != s_.makespan_us && !shifts_.take(s_.best_sequences)) { return; }
            if (shifts_.anneal(warm_us, work, s_.bound.makespan_us, s_.random, s_.budget)) { s_.offer(shifts_.best()); }
            if (!s_.budget.spend(1)) { return; }
        }
    }

    /// Gives the integer program its turn.
    void run_solver() {
        if (!*prove_) { return; }
        const certificate proof = (*prove_)(s_.bound, s_.best, s_.budget.turn(part_));
        s_.budget.count(proof.nodes);
        s_.take(proof.best);
        s_.raise_bound(proof.lower_bound_us);
    }

private:
    [[nodiscard]] bool long_step() const noexcept { return s_.graph.instances() > tuned::long_step; }
    [[nodiscard]] std::int64_t list_work() const noexcept { return tuned::list_work * s_.graph.instances(); }

    [[nodiscard]] synthesis_state::sequences justified(const synthesis_state::sequences& given) {
        const int rounds = s_.graph.instances() > tuned::many_rounds_instances ? tuned::few_rounds : tuned::many_rounds;
        return justify(s_.graph, given, rounds, [this] { return s_.budget.look(); });
    }

    /// Tries a pattern whose period is `factor` times the largest load; true when one fits into memory or there is
    /// nothing left to do. With few microbatches or unlimited memory a pattern must be short. Otherwise its period
    /// counts, and the shortest possible one is worth several tries.
    [[nodiscard]] bool try_pattern(double factor) {
        double load = 0;
        for (int d = 0; d != s_.index.devices; ++d) { load = std::max(load, s_.index.load_us(d)); }
        const bool brief = !s_.memory.limited() || s_.index.microbatches <= 2 * s_.index.devices;
        for (int tries = factor > 1 ? 1 : tuned::pattern_tries; tries != 0; --tries) {
            if (load == 0 || s_.done()) { return true; }
            periodic_search search{s_.problem, s_.index, load * factor};
            const double mean = search.mean_us();
            if (brief) {
                search.anneal(periodic_search::goal::shortest, 5 * mean, 0.2 * mean, tuned::pattern_moves, s_.random,
                              s_.budget);
            } else {
                search.anneal(periodic_search::goal::fitting, mean, 0.05 * mean, 2 * tuned::pattern_moves, s_.random,
                              s_.budget);
            }
            if (search.excess() == 0) {
                const auto unrolled = unroll(s_.index, search.best());
                s_.offer(unrolled);
                if (s_.timed.assign(unrolled) && s_.timed.excess() == 0) { s_.offer(justified(unrolled)); }
            }
            offer_as_priorities(search.best());
            if (search.excess() == 0) { return true; }
        }
        return false;
    }

    /// Offers list schedules with the pattern as priorities; they stay within memory by construction.
    void offer_as_priorities(const periodic_pattern& pattern) {
        std::vector<double> key{};
        for (const double start : pattern.start) {
            for (int k = 0; k != s_.index.microbatches; ++k) { key.push_back(start + k * pattern.period_us); }
        }
        for (const double delay : tuned::pattern_delays) {
            if (s_.done()) { return; }
            const auto run = run_list(s_.index, s_.memory, key, s_.bound.tail, {delay, 0});
            s_.offer(run.order);
            s_.offer(justified(run.order));
            (void)s_.budget.spend(list_work());
        }
    }

    const std::set<std::string, std::less<>>* without_;
    const proof_of* prove_;
    synthesis_state s_;
    /// Share and nodes of the current turn.
    double part_{1};
    std::int64_t nodes_{};

    std::optional<device_bounds> devices_{};
    /// The makespan for which searches over states have nothing left to try.
    double tightened_us_{-1};
    /// Searches over states in a row that gained nothing.
    int fruitless_{};

    justification_search shifts_;
};

} // namespace pulse::detail
