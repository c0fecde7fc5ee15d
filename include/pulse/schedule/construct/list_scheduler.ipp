#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/baselines/gpipe.hpp>
#include <pulse/schedule/baselines/one_f_one_b.hpp>
#include <pulse/schedule/baselines/within_limit.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_engine.hpp>
#include <pulse/schedule/construct/list_rules.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/random_numbers.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

namespace detail {

/// Tries rules on one problem and keeps the best run.
class rule_search {
public:
    constexpr rule_search(const schedule_problem& problem, const list_options& options) :
        rule_search{problem, options, bound_schedule(problem)} {}

    /// Takes the bound of the problem, which may have been raised.
    constexpr rule_search(const schedule_problem& problem, const list_options& options, schedule_bound bound) :
        problem_{&problem}, options_{options}, index_{index_problem(problem, taken_chains::several)},
        back_{mirrored(index_)}, memory_{profile_memory(problem, index_)}, bound_{std::move(bound)} {
        require_room(memory_);
        free_.begins.resize(memory_.begins.size(), 0);
        free_.ends.resize(memory_.ends.size());
        free_.peak_from = memory_.peak_from;
        back_tail_ = index_.mirrored(bound_.head);
    }

    /// Searches until everything is tried, the bound is met, or `go_on()`, asked after every run, returns false: the
    /// rules, under memory limits again for each cap on microbatches in flight; improvement of the best runs; a walk
    /// from the best rule's keys. Baselines are always tried.
    template <class GoOn>
    [[nodiscard]] constexpr list_result search(GoOn go_on) {
        const rule_keys keys{index_, bound_.head};
        std::vector<int> caps{0};
        if (memory_.limited()) {
            const int p = index_.devices;
            for (const int cap : {p, p - 1, p + 1, p / 2, 3 * p / 4, 3 * p / 2, 2 * p}) {
                if (cap > 0 && std::find(caps.begin(), caps.end(), cap) == caps.end()) { caps.push_back(cap); }
            }
        }
        const auto rules = list_rules(options_.effort, problem_->previews > 0);
        for (const int cap : caps) {
            for (const auto& rule : rules) {
                if (proved() || stopped_ || (cap != 0 && rule.delay > 0)) { continue; }
                const double before = best_us_;
                const auto base = keys.base(rule);
                const list_limits limits = rule.limits(cap);
                try_run(keys.of(base), limits);
                if (best_us_ < before) {
                    best_base_ = base;
                    best_limits_ = limits;
                }
                stopped_ = !go_on();
            }
        }
        for (std::size_t i = 0; i < pool_.size() && !proved() && !stopped_; ++i) { improve(pool_[i], go_on); }
        take_baselines();
        explore(keys, caps, go_on);
        return {best_, best_us_, bound_.makespan_us, runs_};
    }

    [[nodiscard]] constexpr const indexed_problem& index() const noexcept { return index_; }

private:
    [[nodiscard]] constexpr bool proved() const noexcept { return best_us_ <= bound_.makespan_us * (1 + 1e-12); }

    /// Whether an order of this length beats the best one by more than rounding: of two orders that differ by less, the
    /// later one may hold far more bytes.
    [[nodiscard]] constexpr bool beats_best(double makespan_us) const noexcept {
        return makespan_us < best_us_ * (1 - 1e-12);
    }

    constexpr list_run forward(const std::vector<double>& key, const list_limits& limits) {
        ++runs_;
        return run_list(index_, memory_, key, bound_.tail, limits);
    }

    /// Takes baselines that fit into memory and are better, so the result is never worse than these.
    constexpr void take_baselines() {
        bool one_each = true;
        for (const auto& ops : index_.on_device) {
            one_each = one_each && static_cast<int>(ops.size()) <= index_.passes;
        }
        take(gpipe(*problem_));
        if (one_each) { take(one_f_one_b(*problem_)); }
    }

    constexpr void take(const schedule& timed) {
        if (!beats_best(timed.makespan_us()) || !fits_memory(*problem_, timed)) { return; }
        best_ = timed;
        best_us_ = timed.makespan_us();
    }

    constexpr void keep(const list_run& run) {
        if (!beats_best(run.makespan_us)) { return; }
        best_ = to_schedule(index_, run.order, run.start);
        best_us_ = run.makespan_us;
    }

    /// Runs the engine; runs short enough to be worth improving go into the pool, shortest first.
    constexpr void try_run(const std::vector<double>& key, list_limits limits) {
        const bool full = pool_.size() == static_cast<std::size_t>(std::max(options_.improved_runs, 1));
        if (full) { limits.give_up_us = pool_.back().makespan_us; }
        list_run run = forward(key, limits);
        if (run.start.empty()) { return; }
        keep(run);
        if (full) { pool_.pop_back(); }
        const auto at = std::upper_bound(pool_.begin(), pool_.end(), run.makespan_us,
                                         [](double a, const list_run& b) { return a < b.makespan_us; });
        pool_.insert(at, std::move(run));
    }

    /// Keys for the mirrored problem: what ends last in `run` is most urgent there.
    [[nodiscard]] constexpr std::vector<double> last_ends_first(const list_run& run) const {
        std::vector<double> key{};
        for (int x = 0; key.size() != run.start.size(); ++x) {
            key.push_back(-index_.timed(x, run.start[static_cast<std::size_t>(x)]).end_us);
        }
        return index_.mirrored(key);
    }

    /// Forward-backward improvement: schedules the mirrored problem by the ends of the last run, then the problem by
    /// the resulting starts, until there is no gain. Memory is limited only in the forward direction.
    template <class GoOn>
    constexpr void improve(list_run run, GoOn& go_on) {
        double reached = run.makespan_us;
        for (int idle = 0; idle < options_.patience && !proved() && !stopped_;) {
            ++runs_;
            run = forward(last_ends_first(run_list(back_, free_, last_ends_first(run), back_tail_, {})), {});
            keep(run);
            if (run.makespan_us < reached) {
                reached = run.makespan_us;
                idle = 0;
            } else {
                ++idle;
            }
            stopped_ = !go_on();
        }
    }

    /// Walks over the bases of the keys: changes a few at random, keeps changes that are not worse.
    template <class GoOn>
    constexpr void explore(const rule_keys& keys, const std::vector<int>& caps, GoOn& go_on) {
        random_numbers random{};
        const double period = keys.period_us();
        std::vector<double> base = best_base_;
        list_limits limits = best_limits_;
        double reached = std::numeric_limits<double>::infinity();
        const double delays[] = {0, 0, 0.25, 0.5, 1};
        for (int left = options_.explored_runs; left > 0 && !proved() && !stopped_; --left) {
            auto changed = base;
            list_limits tried = limits;
            const std::uint64_t changes = 1 + random.below(3);
            for (std::uint64_t i = 0; i != changes; ++i) {
                const auto op = static_cast<std::size_t>(random.below(base.size()));
                const double scale = period * (random.below(2) == 0 ? 0.25 : random.below(2) == 0 ? 1.0 : 4.0);
                const double shift = scale * (2 * random.unit() - 1);
                const bool weight = index_.pass_of(static_cast<int>(op)).op == pass::backward_weight;
                if (weight && random.below(2) == 0) {
                    changed[op] = base[op - 1] + 4 * period * random.unit(); // op - 1 is its B
                } else {
                    changed[op] += shift;
                }
            }
            if (random.below(8) == 0) { tried.delay = delays[random.below(5)]; }
            if (random.below(8) == 0) { tried.in_flight = caps[random.below(caps.size())]; }
            tried.give_up_us = reached * (1 + 1e-12);
            const list_run run = forward(keys.of(changed), tried);
            stopped_ = !go_on();
            if (run.start.empty()) { continue; }
            reached = run.makespan_us;
            base = std::move(changed);
            limits = tried;
            keep(run);
        }
    }

    const schedule_problem* problem_;
    list_options options_;
    indexed_problem index_;
    indexed_problem back_;
    memory_profile memory_;
    memory_profile free_{};
    schedule_bound bound_;
    std::vector<double> back_tail_{};
    schedule best_{};
    double best_us_{std::numeric_limits<double>::infinity()};
    std::vector<double> best_base_{};
    list_limits best_limits_{};
    std::vector<list_run> pool_{};
    int runs_{};
    bool stopped_{};
};

} // namespace detail

PULSE_CONSTEXPR list_result list_search(const schedule_problem& problem, const list_options& options) {
    return detail::rule_search{problem, options}.search([] { return true; });
}

PULSE_CONSTEXPR schedule list_schedule(const schedule_problem& problem, const list_options& options) {
    return list_search(problem, options).order;
}

} // namespace pulse
