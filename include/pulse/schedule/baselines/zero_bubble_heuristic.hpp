#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/timed_orders.hpp>

namespace pulse {

namespace detail {

/// The three choices of the heuristic.
struct zero_bubble_flags {
    /// Warm up only with forwards that end before the first backward can begin; otherwise the last one may delay it.
    bool stop_before_first_backward{};
    /// Leave out a forward that would keep the backward from the next device waiting.
    bool prefer_backward{};
    /// Take a W longer than the wait even if the device has idle time to spare.
    bool fill_greedily{};
};

/// The list heuristic of zero-bubble scheduling (Qi et al., 2023): warms up with as many forwards as memory allows
/// before the first backward returns; then each round runs one backward of every device, forwards before it, and W
/// where it fits into a wait, where the device would else idle longer than the worst one, or where memory requires it.
class zero_bubble_heuristic {
public:
    constexpr zero_bubble_heuristic(const schedule_problem& problem, const indexed_problem& index,
                                    const std::vector<std::int64_t>& limit) :
        index_{&index},
        limit_{&limit} {
        for (const auto& timing : problem.stages) {
            stages_.push_back({});
            stages_.back().device = static_cast<std::size_t>(timing.device);
        }
        for (const auto& h : problem.holds) {
            const auto from = static_cast<std::size_t>(h.begin.op);
            const auto to = static_cast<std::size_t>(std::max(h.end.op, h.also_end.op));
            auto& here = stages_[static_cast<std::size_t>(h.begin.stage)];
            here.need[from] += h.bytes;
            for (std::size_t p = from; p < to; ++p) { here.kept[p] += h.bytes; }
        }
    }

    /// The orders; empty when the heuristic cannot keep the limit.
    [[nodiscard]] constexpr device_orders build(zero_bubble_flags flags) {
        flags_ = flags;
        for (auto& s : stages_) {
            s.done = {};
            s.free_at = s.idle = 0;
            s.order.clear();
        }
        fits_ = true;
        end_.assign(static_cast<std::size_t>(index_->ops() * index_->microbatches), 0.0);
        warm_up();
        for (int k = 1; k < index_->microbatches && fits_; ++k) { round(); }
        device_orders orders(stages_.size());
        for (std::size_t s = 0; s != stages_.size() && fits_; ++s) {
            while (stages_[s].done[2] != index_->microbatches) { put(s, pass::backward_weight); }
            orders[stages_[s].device] = stages_[s].order;
        }
        if (!fits_) { orders.clear(); }
        return orders;
    }

private:
    struct device_state {
        std::size_t device{};
        std::array<std::int64_t, 3> need{}; ///< bytes taken at the start of F, B, W
        std::array<std::int64_t, 3> kept{}; ///< bytes of a microbatch that has finished F, B, W but not its next pass
        std::array<int, 3> done{};
        double free_at{};
        double idle{};
        std::vector<timed_pass> order{};

        [[nodiscard]] constexpr std::int64_t held() const {
            return (done[0] - done[1]) * kept[0] + (done[1] - done[2]) * kept[1];
        }
    };

    [[nodiscard]] constexpr std::size_t op_of(std::size_t s, pass op) const {
        return static_cast<std::size_t>(index_->op_of({op, static_cast<int>(s)}));
    }
    [[nodiscard]] constexpr double cost(std::size_t s, pass op) const { return index_->duration[op_of(s, op)]; }
    [[nodiscard]] constexpr int done(std::size_t s, pass op) const {
        return stages_[s].done[static_cast<std::size_t>(op)];
    }
    /// When the inputs of stage s's next `op` have arrived.
    [[nodiscard]] constexpr double arrival(std::size_t s, pass op) const {
        const auto m = static_cast<std::size_t>(index_->microbatches);
        double at = 0;
        for (const auto& link : index_->before[op_of(s, op)]) {
            const auto from = static_cast<std::size_t>(link.op) * m + static_cast<std::size_t>(done(s, op));
            at = std::max(at, end_[from] + link.lag_us);
        }
        return at;
    }
    constexpr void put(std::size_t s, pass op) {
        auto& here = stages_[s];
        const auto m = static_cast<std::size_t>(index_->microbatches);
        const double start = std::max(here.free_at, arrival(s, op));
        if (here.done[0] > 0) { here.idle += start - here.free_at; }
        int& k = here.done[static_cast<std::size_t>(op)];
        here.free_at = end_[op_of(s, op) * m + static_cast<std::size_t>(k)] = start + cost(s, op);
        here.order.push_back({op, static_cast<int>(s), k++});
    }
    [[nodiscard]] constexpr double most_idle() const {
        double most = 0;
        for (const auto& s : stages_) { most = std::max(most, s.idle); }
        return most;
    }
    [[nodiscard]] constexpr bool has_weight(std::size_t s) const { return stages_[s].done[2] < stages_[s].done[1]; }
    /// Whether memory can hold `forwards` microbatches after their F, and then run B of each while the others wait.
    [[nodiscard]] constexpr bool holds(std::size_t s, int forwards) const {
        const auto& here = stages_[s];
        const std::int64_t limit = (*limit_)[here.device];
        return (forwards - 1) * here.kept[0] + here.need[0] <= limit && forwards * here.kept[0] + here.need[1] <= limit;
    }
    /// Runs W passes until `op` fits into memory.
    constexpr void make_room(std::size_t s, pass op) {
        const auto& here = stages_[s];
        while (here.held() + here.need[static_cast<std::size_t>(op)] > (*limit_)[here.device]) {
            if (!has_weight(s)) {
                fits_ = false;
                return;
            }
            put(s, pass::backward_weight);
        }
    }
    /// Runs W passes while the next `op` has not arrived.
    constexpr void fill_wait(std::size_t s, pass op) {
        const double until = arrival(s, op);
        const auto& here = stages_[s];
        while (has_weight(s) && here.free_at + cost(s, pass::backward_weight) <= until) {
            put(s, pass::backward_weight);
        }
        if (!has_weight(s) || here.free_at >= until) { return; }
        if (flags_.fill_greedily || until - here.free_at > most_idle() - here.idle) { put(s, pass::backward_weight); }
    }

    constexpr void warm_up() {
        const std::size_t last = stages_.size() - 1;
        for (std::size_t s = 0; s <= last; ++s) {
            fits_ = fits_ && holds(s, 1);
            put(s, pass::forward);
        }
        std::vector<int> more(stages_.size(), 0);
        double back = 0; // when the first backward ends on the next device
        for (std::size_t s = last + 1; s-- > 0;) {
            const std::size_t op = op_of(s, pass::backward_input);
            double lag = 0;
            for (const auto& link : index_->before[op]) {
                if (index_->pass_of(link.op).op == pass::backward_input) { lag = std::max(lag, link.lag_us); }
            }
            const double expected = s == last ? stages_[s].free_at : back + lag;
            double busy = stages_[s].free_at;
            while (s != last && 1 + more[s] < index_->microbatches && holds(s, 2 + more[s])) {
                const double next = busy + cost(s, pass::forward);
                if (flags_.stop_before_first_backward ? next > expected : busy >= expected) { break; }
                busy = next;
                ++more[s];
            }
            back = std::max(busy, expected) + cost(s, pass::backward_input);
        }
        for (std::size_t s = 1; s <= last; ++s) {
            while (more[s] > 0 && more[s] >= more[s - 1] && 1 + more[s] < index_->microbatches) { --more[s]; }
            more[s] = std::min(more[s], more[s - 1]);
        }
        for (std::size_t s = 0; s <= last; ++s) {
            for (int i = 0; i != more[s]; ++i) { put(s, pass::forward); }
        }
        for (std::size_t s = last + 1; s-- > 0;) { put(s, pass::backward_input); }
    }

    /// Whether stage s leaves its next forward out of this round: the next device has two in hand, and its next
    /// backward would return before this device finishes the forward and the W passes that make room for it.
    [[nodiscard]] constexpr bool leaves_out(std::size_t s) const {
        const bool behind = s + 1 < stages_.size();
        if (!flags_.prefer_backward || !behind || done(s, pass::forward) < done(s + 1, pass::forward) + 2) {
            return false;
        }
        const double returns =
            stages_[s + 1].free_at + cost(s + 1, pass::forward) + cost(s + 1, pass::backward_input) + back_lag(s);
        const auto& here = stages_[s];
        if (here.free_at >= returns) { return true; }
        std::int64_t held = here.held() + here.need[0];
        double work = cost(s, pass::forward);
        for (int w = here.done[2]; held > (*limit_)[here.device] && w < here.done[1]; ++w) {
            held -= here.kept[1];
            work += cost(s, pass::backward_weight);
        }
        return here.free_at + work > returns && returns - here.free_at <= most_idle() - here.idle;
    }
    /// Lag of the gradient that stage s + 1 sends to stage s.
    [[nodiscard]] constexpr double back_lag(std::size_t s) const {
        const int from = static_cast<int>(op_of(s + 1, pass::backward_input));
        double lag = 0;
        for (const auto& link : index_->before[op_of(s, pass::backward_input)]) {
            if (link.op == from) { lag = std::max(lag, link.lag_us); }
        }
        return lag;
    }

    constexpr void round() {
        const std::size_t count = stages_.size();
        std::vector<char> wanted(count, 0);
        for (std::size_t s = 0; s != count; ++s) {
            wanted[s] = done(s, pass::forward) < index_->microbatches && !leaves_out(s) ? 1 : 0;
        }
        for (std::size_t s = count - 1; s-- > 0;) { wanted[s] = std::min(wanted[s], wanted[s + 1]); }
        for (std::size_t s = 0; s != count && fits_; ++s) {
            if (wanted[s] == 0) { continue; }
            make_room(s, pass::forward);
            if (s > 0) { fill_wait(s, pass::forward); }
            put(s, pass::forward);
        }
        for (std::size_t s = count; s-- > 0 && fits_;) {
            make_room(s, pass::backward_input);
            if (s + 1 < count) { fill_wait(s, pass::backward_input); }
            while (s == 0 && done(s, pass::forward) == index_->microbatches && has_weight(s)) {
                put(s, pass::backward_weight);
            }
            put(s, pass::backward_input);
        }
    }

    const indexed_problem* index_;
    const std::vector<std::int64_t>* limit_;
    zero_bubble_flags flags_{};
    bool fits_{true};
    std::vector<device_state> stages_{};
    std::vector<double> end_{};
};

} // namespace detail

} // namespace pulse
