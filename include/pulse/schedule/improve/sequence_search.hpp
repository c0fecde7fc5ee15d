#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/schedule/improve/sequence_state.hpp>
#include <pulse/schedule/random_numbers.hpp>
#include <pulse/schedule/search_budget.hpp>

namespace pulse::detail {

/// One cooling of a walk.
struct cooling {
    /// Temperatures at the beginning and at the end, microseconds.
    double warm_us{};
    double cold_us{};
    /// How long: instances visited, a few for every swap that is tried.
    std::int64_t work{};
    /// The part of the step that may change, as shares of the instances in order of start.
    double from{0};
    double to{1};
};

/// Simulated annealing over device sequences (van Laarhoven, Aarts, Lenstra, 1992): neighbours on a critical path trade
/// places. Memory over a limit costs a price per byte that rises and falls, so that the walk crosses the border often.
class sequence_search {
public:
    explicit sequence_search(const sequence_graph& graph) : graph_{&graph}, state_{graph} {
        double work = 0;
        for (const int o : graph.op) { work += graph.duration[static_cast<std::size_t>(o)]; }
        mean_us_ = graph.op.empty() ? 0.0 : work / static_cast<double>(graph.op.size());
        std::int64_t bytes = 0;
        for (const auto b : graph.begins) { bytes = std::max(bytes, b); }
        unit_price_ = bytes > 0 ? mean_us_ / static_cast<double>(bytes) : 0.0;
        price_ = unit_price_;
    }

    /// Mean duration of a pass, microseconds: what temperatures are measured in.
    [[nodiscard]] double mean_us() const noexcept { return mean_us_; }
    [[nodiscard]] double best_us() const noexcept { return best_us_; }
    [[nodiscard]] std::int64_t visits() const noexcept { return state_.visits(); }

    /// Starts from these sequences and forgets the best; false when they wait for each other in a circle.
    [[nodiscard]] bool take(const std::vector<std::vector<int>>& sequences) {
        best_us_ = std::numeric_limits<double>::infinity();
        if (!state_.assign(sequences)) { return false; }
        keep();
        return true;
    }

    /// The sequences with the least makespan within memory.
    [[nodiscard]] std::vector<std::vector<int>> best() const {
        std::vector<std::vector<int>> out(static_cast<std::size_t>(graph_->devices));
        for (const int x : best_) {
            const auto o = static_cast<std::size_t>(graph_->op[static_cast<std::size_t>(x)]);
            out[static_cast<std::size_t>(graph_->device[o])].push_back(x);
        }
        return out;
    }

    /// One cooling; ends early when `bound_us` is reached, nothing is left to swap, or the budget is used up. True when
    /// the best improved.
    bool anneal(const cooling& plan, double bound_us, random_numbers& random, search_budget& budget) {
        const double before = best_us_;
        const double enough = bound_us * (1 + 1e-12);
        const auto all = static_cast<double>(graph_->op.size());
        from_ = static_cast<int>(plan.from * all);
        to_ = static_cast<int>(plan.to * all);
        if (to_ - from_ < 2) { return false; }
        if (from_ > 0 || to_ < static_cast<int>(all)) { state_.confine(from_, to_); }
        const auto count = static_cast<std::uint64_t>(to_ - from_);
        double temperature = plan.warm_us;
        candidates_.clear();
        int tried = 0;
        int beyond = 0;
        std::int64_t work = 0;
        while (work < plan.work && best_us_ > enough) {
            const std::int64_t visits = state_.visits();
            const int u =
                state_.excess() > 0 && random.below(4) == 0 ? static_cast<int>(random.below(count)) : pick(random);
            if (u < 0) { break; }
            if (state_.may_swap(u)) {
                const auto effect = state_.judge(u);
                const double now = state_.makespan_us();
                const double worse =
                    std::max(0.0, effect.through_us - now) + price_ * static_cast<double>(effect.excess_change);
                if (worse <= 0 || random.unit() < std::exp(-worse / temperature)) {
                    if (state_.swap(u)) {
                        if (state_.excess() == 0 && state_.makespan_us() < best_us_ * (1 - 1e-12)) { keep(); }
                        if (state_.excess() > 0) { ++beyond; }
                    }
                }
            }
            if (++tried % 64 == 0) {
                const double part = static_cast<double>(work) / static_cast<double>(plan.work);
                temperature = plan.warm_us * std::pow(plan.cold_us / plan.warm_us, part);
            }
            if (tried == 256) {
                adapt_price(beyond, tried);
                tried = beyond = 0;
            }
            const std::int64_t steps = 8 + state_.visits() - visits;
            work += steps;
            if (!budget.spend(steps)) { break; }
        }
        return best_us_ < before;
    }

private:
    void keep() {
        if (state_.excess() > 0) { return; }
        best_us_ = state_.makespan_us();
        best_.assign(state_.order().begin(), state_.order().end());
    }

    void adapt_price(int beyond, int of) {
        price_ *= beyond * 2 > of ? 1.25 : 0.85;
        price_ = std::clamp(price_, unit_price_ * 0.01, unit_price_ * 100);
    }

    [[nodiscard]] bool critical_pair(int u) const noexcept {
        const double slack = state_.makespan_us() * (1 - 1e-9);
        const int v = state_.next(u);
        return v >= 0 && state_.end(u) + state_.duration(v) + state_.tail(v) >= slack &&
               state_.start(u) + state_.duration(u) + state_.duration(v) + state_.tail(v) >= slack;
    }

    /// An instance that runs right before another one on a critical path and may be swapped with it; -1 when there is
    /// none.
    [[nodiscard]] int pick(random_numbers& random) {
        const auto count = static_cast<std::uint64_t>(to_ - from_);
        for (int tries = 0; tries != 12; ++tries) {
            const int u = state_.order()[static_cast<std::size_t>(from_) + random.below(count)];
            if (critical_pair(u) && state_.may_swap(u)) { return u; }
        }
        while (!candidates_.empty()) {
            const auto i = static_cast<std::size_t>(random.below(candidates_.size()));
            const int u = candidates_[i];
            candidates_[i] = candidates_.back();
            candidates_.pop_back();
            if (critical_pair(u) && state_.may_swap(u)) { return u; }
        }
        for (int i = from_; i != to_; ++i) {
            const int u = state_.order()[static_cast<std::size_t>(i)];
            if (critical_pair(u) && state_.may_swap(u)) { candidates_.push_back(u); }
        }
        if (candidates_.empty()) { return -1; }
        const auto i = static_cast<std::size_t>(random.below(candidates_.size()));
        return candidates_[i];
    }

    const sequence_graph* graph_;
    sequence_state state_;
    double mean_us_{};
    double unit_price_{};
    double price_{};
    double best_us_{std::numeric_limits<double>::infinity()};
    std::vector<int> best_{};
    std::vector<int> candidates_{};
    int from_{};
    int to_{};
};

} // namespace pulse::detail
