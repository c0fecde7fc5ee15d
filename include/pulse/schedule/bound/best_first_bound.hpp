#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/schedule/bound/relaxed_problem.hpp>
#include <pulse/schedule/bound/relaxed_states.hpp>

namespace pulse::detail {

/// A lower bound of a relaxed problem by best-first search over its states (A*; Hart, Nilsson and Raphael, 1968): it
/// goes on from the partial schedule that promises the least makespan, which no schedule beats from then on.
///
/// What makes a step long happens in its warm-up, so that few states prove what it costs, however many microbatches
/// follow; a search over layers of states would have to go through all of them.
class best_first_bound {
public:
    /// At most 65,535 microbatches.
    explicit best_first_bound(relaxed_problem problem) : states_{std::move(problem)} {}

    /// No schedule of the relaxation is shorter than this, or than what was asked about last.
    [[nodiscard]] double proved_us() const noexcept { return proved_; }
    /// Nothing is left to prove: none is shorter than what was asked about, or a whole one promises no more than that.
    [[nodiscard]] bool finished() const noexcept { return finished_; }
    /// Partial schedules that it has looked at.
    [[nodiscard]] std::int64_t looked() const noexcept { return looked_; }
    /// How many it had looked at when it last proved more than before.
    [[nodiscard]] std::int64_t gained() const noexcept { return gained_; }
    /// Partial schedules that it holds in memory, those that others have replaced too.
    [[nodiscard]] std::int64_t stored() const noexcept { return stored_; }

    /// Looks at `most` more partial schedules of makespans below `below_us`, which must not grow from call to call.
    /// Ends early when `spend()`, called before each, is false.
    template <class Spend>
    void run(double below_us, std::int64_t most, const Spend& spend) {
        states_.set_below(below_us);
        if (stored_ == 0 && !finished_) {
            states_.begin(below_us, all_);
            take_added();
        }
        for (; !finished_; --most) {
            const double least = open_.empty() ? relaxed_states::never : open_.front().value_us;
            // What was left out promises no less than what was asked about then.
            proved_ = std::max(proved_, std::min(least, below_us));
            if (proved_ > noted_ * (1 + 1e-9)) { // more than what another order of sums gives
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
    /// Among those that promise the same, the one with fewest passes comes first: few are looked at before what could
    /// replace them. A partial schedule may promise less than the one that it came from, which knew of more tails; it
    /// must not take over what that one promised, since others replace it by their times alone.
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
    /// A heap of what can be gone on from.
    std::vector<promise> open_{};
    /// The one that is gone on from.
    relaxed_states::state one_{};
    double proved_{};
    /// What it had proved when it last gained something.
    double noted_{};
    std::int64_t looked_{};
    std::int64_t gained_{};
    std::int64_t stored_{};
    bool finished_{};
};

} // namespace pulse::detail
