#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <pulse/schedule/bound/device_bounds.hpp>
#include <pulse/schedule/bound/device_propagation.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/bound/memory_bounds.hpp>
#include <pulse/schedule/bound/tighten_bound.hpp>
#include <pulse/schedule/construct/known_orders.hpp>
#include <pulse/schedule/construct/list_engine.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/construct/periodic_pattern.hpp>
#include <pulse/schedule/construct/periodic_search.hpp>
#include <pulse/schedule/improve/justification_search.hpp>
#include <pulse/schedule/improve/justify.hpp>
#include <pulse/schedule/improve/sequence_search.hpp>
#include <pulse/schedule/improve/sequence_state.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/prove/window_bound.hpp>
#include <pulse/schedule/prove/window_propagation.hpp>
#include <pulse/schedule/prove/window_shaving.hpp>
#include <pulse/schedule/prove/window_state.hpp>
#include <pulse/schedule/random_numbers.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/search_budget.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/time_grain.hpp>
#include <pulse/schedule/validate.hpp>

namespace pulse {

namespace detail {

/// One synthesis: incumbent and bound, and the phases that try to bring them together. Each takes what it may use from
/// the turn of the budget.
class synthesizer {
public:
    /// The time for the bound counts.
    synthesizer(const schedule_problem& problem, const search_limit& limit,
                const std::function<void(const synthesis_progress&)>& progress) :
        budget_{limit},
        progress_{&progress}, problem_{without_idle_limits(problem)}, index_{index_problem(problem_)},
        graph_{make_sequence_graph(problem_, index_)}, bound_{bound_schedule(problem_)}, walk_{graph_}, shifts_{graph_},
        timed_{graph_}, memory_{profile_memory(problem_, index_)} {
        require_room(memory_);
    }

    [[nodiscard]] search_budget& budget() noexcept { return budget_; }
    [[nodiscard]] const schedule_bound& bound() const noexcept { return bound_; }
    [[nodiscard]] const schedule& best() const noexcept { return best_; }

    /// Takes a schedule of the problem when it is one and is better.
    void take(const schedule& known) {
        if (!is_valid(problem_, known)) { return; }
        offer(known);
    }

    /// No schedule is shorter than `lower_bound_us`, less what the rounding of sums adds.
    void raise_bound(double lower_bound_us) {
        const double raised = std::min(lower_bound_us, makespan_);
        if (raised <= bound_.makespan_us) { return; }
        bound_.makespan_us = raised;
        report();
    }

    /// Published orders, where they fit, unless looking for them takes too large a part of the time.
    void run_known_orders() {
        const auto go_on = [this](std::int64_t passes) {
            const double seconds = 4e-7 * static_cast<double>(passes);
            return !done() && budget_.look() && seconds < 0.2 * budget_.turn(1).seconds;
        };
        for_each_known_order(problem_, go_on, [this](const schedule& order) {
            (void)budget_.spend(40 * graph_.instances());
            take(order);
        });
    }

    /// A better bound from single devices.
    void run_devices() {
        if (done() || graph_.microbatches > 65535) { return; }
        if (!devices_) { devices_.emplace(problem_, bound_); }
        raise_bound(devices_->raise(bound_.makespan_us, makespan_, [this] { return budget_.spend(100); }));
    }

    /// Searches over states: a better bound, at times a better schedule. False when it has nothing more to try for this
    /// incumbent.
    bool tighten(double part, std::int64_t nodes) {
        if (proved() || makespan_ == tightened_ || budget_.ended()) { return false; }
        // Under a limit, windows of devices prove more than anything else; on long steps a good schedule comes first,
        // and where devices have very many states there, hardly anything is proved.
        const double states = device_states(index_);
        const bool narrow = memory_.limited() && (!long_step() || ++tightenings_ > 2);
        const bool narrowing = narrow && long_step() && narrowing_ && states <= few_device_states;
        part = narrowing ? std::max(part, 0.8) : part * std::pow(0.15, fruitless_);
        if (memory_.limited() && long_step() && states > 500 * few_device_states) { part *= 0.1; }
        const double before[] = {makespan_, bound_.makespan_us};
        const auto limit = budget_.turn(part, nodes);
        auto proof = narrow ? tighten_bound(problem_, bound_, makespan_, limit, windows_)
                            : tighten_bound(problem_, bound_, makespan_, limit);
        budget_.count(proof.nodes);
        if (!proof.better.devices.empty()) { take(proof.better); }
        raise_bound(proof.lower_bound_us);
        if (proof.finished) { tightened_ = makespan_; }
        // Large problems whose states are too many gain more from search.
        const bool gained = makespan_ != before[0] || bound_.makespan_us != before[1];
        if (narrow) { narrowing_ = proof.narrowing; }
        fruitless_ = gained || !long_step() ? 0 : fruitless_ + 1;
        return !proof.finished;
    }

    /// A better bound from windows that are shaved: refutes longer and longer makespans, in steps that grow while that
    /// succeeds and shrink when it does not. Where memory binds, or instances are many, search needs the time more.
    void run_shaving(double part, std::int64_t nodes) {
        if (proved() || memory_.limited() || graph_.instances() > 800 || budget_.ended()) { return; }
        part *= std::pow(0.15, unshaven_);
        const double grain = time_grain_us(problem_, makespan_);
        if (!shaver_) {
            facts_ = window_facts_of(problem_);
            shaver_.emplace(facts_, bound_, makespan_, grain);
        }
        const double before = bound_.makespan_us;
        const auto spend = [this](std::int64_t pairs) { return budget_.spend(1 + pairs / 64); };
        const double longest = cutoff_below(makespan_, grain);
        for (int attempt = 0; attempt != 3; ++attempt) {
            const double low = bound_.makespan_us;
            const double cutoff = std::min(longest, low + std::max(shaving_step_ * (longest - low), grain / 2));
            budget_.begin_turn(0.5 * part, std::max<std::int64_t>(1, nodes / 3));
            if (shaver_->refute(cutoff, spend)) {
                raise_bound(least_after(cutoff, grain));
                shaving_step_ = std::min(1.0, 1.5 * shaving_step_);
            } else {
                shaving_step_ = std::max(0.02, 0.6 * shaving_step_);
                if (bound_.makespan_us == before) { break; } // elsewhere the time may do more
            }
            if (proved() || budget_.ended()) { break; }
        }
        unshaven_ = bound_.makespan_us > before ? 0 : unshaven_ + 1;
    }

    /// A better bound from windows alone; not for problems of so many instances that it takes long and finds nothing.
    void run_windows() {
        if (done() || graph_.instances() > 1024) { return; }
        const window_facts facts = window_facts_of(problem_);
        window_propagator propagator{facts};
        const double grain = time_grain_us(problem_, makespan_);
        refute_by_windows(
            facts, bound_, propagator, bound_.makespan_us, cutoff_below(makespan_, grain),
            std::max(grain, 1e-6 * makespan_),
            [this] { return budget_.spend(400 * graph_.instances()) && budget_.look(); },
            [&](double cutoff) { raise_bound(least_after(cutoff, grain)); });
    }

    /// Priority rules, forward-backward improvement, a walk over priorities.
    void run_lists(const list_options& options) {
        if (done() && !sequences_.empty()) { return; }
        list_search lists{problem_, options, bound_};
        const std::int64_t work = 40 * graph_.instances();
        // Where memory is limited, patterns do better on long steps.
        std::int64_t left = long_step() && memory_.limited() ? 15'000'000 : 60'000'000;
        offer(lists.search([&] { return budget_.spend(work) && budget_.look() && (left -= work) > 0; }).order);
    }

    /// Patterns of several periods, unrolled and, justified, as priorities: shorter periods while they stay within
    /// memory, longer ones until they do, then two between the last that did not and the first that did. Where
    /// microbatches are few, or memory is free, a pattern must be short; else it is its period that counts, and the
    /// shortest possible one is worth several tries. A step of no more microbatches than devices has no steady state.
    void run_patterns(std::int64_t moves) {
        double load = 0;
        for (int d = 0; d != index_.devices; ++d) { load = std::max(load, index_.load_us(d)); }
        if (load == 0 || index_.microbatches <= std::max(2, index_.devices)) { return; }
        const bool brief = !memory_.limited() || index_.microbatches <= 2 * index_.devices;
        const auto fits = [&](double factor) {
            for (int tries = factor > 1 ? 1 : 6; tries != 0; --tries) {
                if (done()) { return true; }
                periodic_search search{problem_, index_, load * factor};
                const double mean = search.mean_us();
                if (brief) {
                    search.anneal(periodic_search::goal::shortest, 5 * mean, 0.2 * mean, moves, random_, budget_);
                } else {
                    search.anneal(periodic_search::goal::fitting, mean, 0.05 * mean, 2 * moves, random_, budget_);
                }
                if (search.excess() == 0) {
                    const auto unrolled = unroll(index_, search.best());
                    offer(unrolled);
                    if (timed_.assign(unrolled) && timed_.excess() == 0) { offer(justified(unrolled)); }
                }
                offer_as_priorities(search.best());
                if (search.excess() == 0) { return true; }
            }
            return false;
        };
        double low = 1.02;
        if (fits(low)) {
            (void)(fits(1.005) && fits(1));
            return;
        }
        for (const double high : {1.05, 1.1, 1.2, 1.4}) {
            if (fits(high)) {
                const double middle = low + (high - low) / 2;
                (void)fits(fits(middle) ? (low + middle) / 2 : (middle + high) / 2);
                return;
            }
            low = high;
        }
    }

    /// Annealing of the device sequences, in slices that grow, until the limit: the whole step where it is short, else
    /// mostly parts of it, beginning and end above all.
    void run_walks() {
        const std::int64_t count = graph_.instances();
        std::int64_t& work = walk_work_;
        if (work == 0) { work = std::max<std::int64_t>(3'000'000, 900 * count); }
        const double warm[] = {3, 3, 1, 10, 3};
        const double mean = walk_.mean_us();
        if (mean == 0) { return; }
        for (std::size_t& round = walk_round_; !done(); ++round) {
            // Walks do little for a step of many passes, but find at times what iterated justification does not.
            if (long_step() && round % 4 != 2) {
                run_shifts(4 * work);
                if (!budget_.spend(1)) { break; }
                continue;
            }
            const bool whole = !long_step() || round % 5 == 4;
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
            run_shifts(4 * work);
            if (!budget_.spend(1)) { break; }
            // The cap is out of reach of any walk, but walks of tiny problems end at once and are many.
            if (whole) { work = std::min(work + work / 4, std::int64_t{1'000'000'000'000}); }
        }
    }

    /// Iterated justification of the incumbent, with about `work` steps.
    void run_shifts(std::int64_t work) {
        if (done() || walk_.mean_us() == 0) { return; }
        if (shifts_.best_us() != makespan_ && !shifts_.take(sequences_)) { return; }
        if (shifts_.anneal(0.1 * walk_.mean_us(), work, bound_.makespan_us, random_, budget_)) {
            offer(shifts_.best());
        }
    }

    /// Everything as early as it can be: never longer, and what it gains the walks start from.
    void run_justification() {
        if (proved() || sequences_.empty()) { return; }
        offer(justified(sequences_));
    }

    [[nodiscard]] bool done() const noexcept { return proved() || budget_.over(); }
    [[nodiscard]] bool proved() const noexcept { return makespan_ <= bound_.makespan_us * (1 + 1e-9); }

    [[nodiscard]] synthesis result() const {
        const double lower = std::min(bound_.makespan_us, makespan_); // sums are rounded
        return {best_, makespan_, lower, budget_.nodes(), budget_.seconds(), proved()};
    }

private:
    /// Whether parts of the step are worth a search of their own.
    [[nodiscard]] bool long_step() const noexcept { return graph_.instances() > 400; }

    [[nodiscard]] std::vector<std::vector<int>> justified(const std::vector<std::vector<int>>& sequences) {
        const int rounds = graph_.instances() > 10000 ? 2 : 10;
        return justify(graph_, sequences, rounds, [this] { return budget_.look(); });
    }

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
            offer(justified(run.order));
            (void)budget_.spend(40 * graph_.instances());
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
        const double lower = std::min(bound_.makespan_us, makespan_);
        if (*progress_) { (*progress_)({budget_.seconds(), makespan_, lower}); }
    }

    search_budget budget_;
    const std::function<void(const synthesis_progress&)>* progress_;
    schedule_problem problem_;
    indexed_problem index_;
    sequence_graph graph_;
    schedule_bound bound_;
    sequence_search walk_;
    justification_search shifts_;
    sequence_state timed_;
    memory_profile memory_;
    random_numbers random_{};
    std::vector<std::pair<double, std::vector<std::vector<int>>>> pool_{};
    schedule best_{};
    std::vector<std::vector<int>> sequences_{};
    double makespan_{std::numeric_limits<double>::infinity()};
    /// What searches over the states of devices know of all schedules shorter than the best one.
    device_windows windows_{};
    /// Whether they will be narrower after the next one.
    bool narrowing_{true};
    int tightenings_{};
    /// The makespan for which searches over states have nothing more to try.
    double tightened_{-1};
    /// Searches over states since one of them gained something.
    int fruitless_{};
    std::optional<device_bounds> devices_{};
    window_facts facts_{};
    std::optional<window_shaver> shaver_{};
    /// How far from the bound to the best makespan the next attempt goes.
    double shaving_step_{0.15};
    /// Turns of shaving since one of them gained something.
    int unshaven_{};
    /// Of walks: how long the next one is, and which.
    std::int64_t walk_work_{};
    std::size_t walk_round_{};
};

} // namespace detail

} // namespace pulse
