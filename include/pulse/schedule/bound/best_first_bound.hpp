#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/schedule/bound/relaxed_problem.hpp>
#include <pulse/schedule/bound/relaxed_states.hpp>

namespace pulse::detail {

/// A lower bound of a relaxed problem by best-first search over its states (A*; Hart, Nilsson and Raphael, 1968):
/// always expands the partial schedule that promises the least makespan, a makespan that no schedule can beat.
///
/// A step becomes long in its warm-up, so few states prove the cost, however many microbatches follow; a search over
/// layers of states would have to go through all of them.
class best_first_bound {
public:
    /// At most 65,535 microbatches.
    explicit best_first_bound(relaxed_problem problem) : states_{std::move(problem)} {}

    /// No schedule of the relaxation is shorter than this. At most the greatest makespan that was asked about.
    [[nodiscard]] double proved_us() const noexcept { return proved_; }
    /// Nothing is left to prove: no schedule is shorter than `below_us`, or a complete one attains the bound.
    [[nodiscard]] bool finished() const noexcept { return finished_; }
    /// Partial schedules looked at so far.
    [[nodiscard]] std::int64_t looked() const noexcept { return looked_; }
    /// The value of `looked()` when the bound last rose.
    [[nodiscard]] std::int64_t gained() const noexcept { return gained_; }
    /// Partial schedules stored in memory, including those that others have replaced.
    [[nodiscard]] std::int64_t stored() const noexcept { return stored_; }

    /// Looks at `most` more partial schedules, for makespans below `below_us`, which must not grow from call to call.
    /// Ends early when `spend()`, called before each, returns false.
    template <class Spend>
    void run(double below_us, std::int64_t most, const Spend& spend) {
        states_.set_below(below_us);
        if (stored_ == 0 && !finished_) {
            states_.begin(below_us, all_);
            take_added();
        }
        for (; !finished_; --most) {
            const double least = open_.empty() ? relaxed_states::never : open_.front().value_us;
            // Pruned states promise at least the `below_us` at which they were pruned.
            proved_ = std::max(proved_, std::min(least, below_us));
            if (proved_ > noted_ * (1 + 1e-9)) { // more than the rounding of sums explains
                noted_ = proved_;
                gained_ = looked_;
            }
            finished_ = !(least < below_us) || open_.front().placed == states_.passes();
            if (finished_ || most <= 0 || !spend()) { return; }
            ++looked_;
            std::pop_heap(open_.begin(), open_.end(), later{});
            const promise next = open_.back();
            open_.pop_back();
            go_on_from(next);
        }
    }

private:
    struct promise {
        double value_us{};
        std::size_t placed{};
        std::size_t place{};
        std::size_t step{};
    };
    /// Among equal promises, the one with the fewest passes comes first, so few are looked at before others could
    /// replace them. A partial schedule may promise less than its parent, which knew of more tails. It must not inherit
    /// the parent's promise, since others replace it by their times alone.
    struct later {
        [[nodiscard]] bool operator()(const promise& a, const promise& b) const noexcept {
            if (a.value_us != b.value_us) { return a.value_us > b.value_us; }
            return a.placed != b.placed ? a.placed > b.placed : a.step > b.step;
        }
    };

    void take_added() {
        stored_ += static_cast<std::int64_t>(states_.added().size());
        for (const auto& a : states_.added()) {
            std::size_t placed = 0;
            for (const char16_t count : all_.states[a.place].counts) { placed += count; }
            open_.push_back({a.value_us, placed, a.place, a.step});
            std::push_heap(open_.begin(), open_.end(), later{});
        }
    }

    void go_on_from(const promise& p) {
        const auto& here = all_.states[p.place];
        const auto at = std::find(here.steps.begin(), here.steps.end(), p.step);
        if (at == here.steps.end()) { return; } // another one has replaced it
        const auto stride = static_cast<std::ptrdiff_t>(here.times.size() / here.steps.size());
        const auto times = here.times.begin() + (at - here.steps.begin()) * stride;
        one_.counts = here.counts;
        one_.held = here.held;
        one_.times.assign(times, times + stride);
        states_.expand(one_, one_.times.data(), p.step, all_);
        take_added();
    }

    relaxed_states states_;
    relaxed_states::layer all_{};
    /// A heap of the partial schedules that can be expanded.
    std::vector<promise> open_{};
    /// The one being expanded.
    relaxed_states::state one_{};
    double proved_{};
    /// The bound when it last rose.
    double noted_{};
    std::int64_t looked_{};
    std::int64_t gained_{};
    std::int64_t stored_{};
    bool finished_{};
};

} // namespace pulse::detail
