#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include <pulse/schedule/improve/sequence_graph.hpp>

namespace pulse::detail {

/// The sequences of all devices with their earliest starts, tails and memory levels, kept up to date when a part of the
/// order changes.
///
/// start = longest path to an instance, tail = longest path from its end to the end of the step (Balas, 1969). An
/// update costs only what it changes: starts and tails are propagated from there.
class sequence_state {
public:
    explicit sequence_state(const sequence_graph& graph) : g_{&graph} {
        const auto count = static_cast<std::size_t>(graph.instances());
        start_.resize(count, 0);
        tail_.resize(count, 0);
        prev_.resize(count, -1);
        next_.resize(count, -1);
        order_.resize(count, 0);
        place_.resize(count, 0);
        level_.resize(count, 0);
        freed_.resize(count, 0);
        dirty_.resize(count / 64 + 1, 0);
        last_.resize(static_cast<std::size_t>(graph.devices), -1);
    }

    [[nodiscard]] const sequence_graph& graph() const noexcept { return *g_; }
    [[nodiscard]] const std::vector<double>& starts() const noexcept { return start_; }
    [[nodiscard]] double start(int x) const noexcept { return start_[at(x)]; }
    [[nodiscard]] double tail(int x) const noexcept { return tail_[at(x)]; }
    [[nodiscard]] int next(int x) const noexcept { return next_[at(x)]; }
    [[nodiscard]] int prev(int x) const noexcept { return prev_[at(x)]; }
    [[nodiscard]] double duration(int x) const noexcept { return g_->duration[at(g_->op[at(x)])]; }
    [[nodiscard]] double end(int x) const noexcept { return start(x) + duration(x); }
    /// Bytes that the device of `x` holds once `x` has ended, where memory is limited.
    [[nodiscard]] std::int64_t held_after(int x) const noexcept { return level_[at(x)] - freed_[at(x)]; }
    /// Position of `x` in `order()`.
    [[nodiscard]] int place(int x) const noexcept { return place_[at(x)]; }
    [[nodiscard]] double makespan_us() const noexcept { return makespan_; }
    /// Bytes over the limits, summed over all instances.
    [[nodiscard]] std::int64_t excess() const noexcept { return excess_; }

    /// Takes the sequences of every device; false when they deadlock, after which only another call is allowed.
    [[nodiscard]] bool assign(const std::vector<std::vector<int>>& sequences) {
        std::fill(prev_.begin(), prev_.end(), -1);
        std::fill(next_.begin(), next_.end(), -1);
        for (std::size_t d = 0; d != sequences.size(); ++d) {
            int last = -1;
            for (const int x : sequences[d]) {
                prev_[at(x)] = last;
                if (last >= 0) { next_[at(last)] = x; }
                last = x;
            }
            last_[d] = last;
        }
        if (!sort()) { return false; }
        excess_ = 0;
        for (const int x : order_) { hold(x); }
        for (std::size_t i = 0; i != order_.size(); ++i) { start_[at(order_[i])] = start_of(order_[i]); }
        for (std::size_t i = order_.size(); i-- > 0;) { tail_[at(order_[i])] = tail_of(order_[i]); }
        measure();
        return true;
    }

    /// Puts the instances at positions [from, from + part.size()) of `order()` into the order of `part`, which lists
    /// the same instances, predecessors first. Costs only what it changes.
    void reorder(int from, const std::vector<int>& part) {
        const int to = from + static_cast<int>(part.size());
        ends_.assign(last_.size(), {-1, -1});
        for (int i = from; i != to; ++i) {
            const int x = order_[at(i)];
            auto& ends = ends_[at(g_->device[at(g_->op[at(x)])])];
            if (const int p = prev(x); p < 0 || place_[at(p)] < from) { ends.first = p; }
            if (const int n = next(x); n < 0 || place_[at(n)] >= to) { ends.second = n; }
            excess_ -= over(x);
        }
        for (int i = from; i != to; ++i) {
            order_[at(i)] = part[at(i - from)];
            place_[at(order_[at(i)])] = i;
        }
        for (const int x : part) {
            auto& ends = ends_[at(g_->device[at(g_->op[at(x)])])];
            prev_[at(x)] = ends.first;
            next_[at(x)] = ends.second;
            if (ends.first >= 0) { next_[at(ends.first)] = x; }
            if (ends.second >= 0) {
                prev_[at(ends.second)] = x;
            } else {
                last_[at(g_->device[at(g_->op[at(x)])])] = x;
            }
            hold(x);
            ends.first = x;
        }
        for (const int x : part) { push(x); }
        for (const auto& [last, after] : ends_) {
            if (after >= 0) { push(after); }
        }
        propagate_starts(from);
        for (const int x : part) { push(x); }
        for (int i = from; i != to; ++i) {
            if (const int p = prev(order_[at(i)]); p >= 0) { push(p); }
        }
        propagate_tails(to - 1);
        measure();
    }

    /// All instances, predecessors first; those of a device are in the order of its sequence.
    [[nodiscard]] const std::vector<int>& order() const noexcept { return order_; }

private:
    [[nodiscard]] static std::size_t at(int x) noexcept { return static_cast<std::size_t>(x); }
    [[nodiscard]] double ready(int x) const noexcept {
        const auto o = at(g_->op[at(x)]);
        double time = 0;
        for (int e = g_->first_before[o]; e != g_->first_before[o + 1]; ++e) {
            const auto& edge = g_->before[at(e)];
            time = std::max(time, start_[at(x + edge.shift)] + edge.weight_us);
        }
        return time;
    }
    [[nodiscard]] double least_after(int x) const noexcept {
        const auto o = at(g_->op[at(x)]);
        double time = 0;
        for (int e = g_->first_after[o]; e != g_->first_after[o + 1]; ++e) {
            const auto& edge = g_->after[at(e)];
            time = std::max(time, tail_[at(x + edge.shift)] + edge.weight_us);
        }
        return time;
    }
    [[nodiscard]] double start_of(int x) const noexcept {
        const int p = prev(x);
        return p >= 0 ? std::max(end(p), ready(x)) : ready(x);
    }
    [[nodiscard]] double tail_of(int x) const noexcept {
        const int n = next(x);
        return n >= 0 ? std::max(tail(n) + duration(n), least_after(x)) : least_after(x);
    }

    /// Bytes over the limit while `x` runs.
    [[nodiscard]] std::int64_t over(int x) const noexcept {
        if (g_->limit.empty()) { return 0; }
        return std::max<std::int64_t>(0, level_[at(x)] - g_->limit[at(g_->device[at(g_->op[at(x)])])]);
    }
    /// Sets the levels of `x`, whose position is known, from the instance before it.
    void hold(int x) noexcept {
        if (g_->limit.empty()) { return; }
        const auto o = at(g_->op[at(x)]);
        const int k = x - static_cast<int>(o) * g_->microbatches;
        level_[at(x)] = (prev(x) < 0 ? 0 : held_after(prev(x))) + g_->begins[o];
        freed_[at(x)] = g_->frees[o];
        for (const int other : g_->partners[o]) {
            if (place(other * g_->microbatches + k) < place(x)) {
                freed_[at(x)] += g_->shared[o * at(g_->ops) + at(other)];
            }
        }
        excess_ += over(x);
    }

    void measure() noexcept {
        makespan_ = 0;
        for (const int x : last_) {
            if (x >= 0) { makespan_ = std::max(makespan_, end(x) + tail(x)); }
        }
    }

    /// Sorts the instances topologically, close to the order of their starts; false when there is a cycle.
    [[nodiscard]] bool sort() {
        std::vector<int> waits(start_.size(), 0);
        using entry = std::pair<double, int>;
        std::priority_queue<entry, std::vector<entry>, std::greater<>> open{};
        for (std::size_t x = 0; x != waits.size(); ++x) {
            const auto o = at(g_->op[x]);
            waits[x] = g_->first_before[o + 1] - g_->first_before[o] + (prev_[x] >= 0 ? 1 : 0);
            start_[x] = 0;
            if (waits[x] == 0) { open.push({0.0, static_cast<int>(x)}); }
        }
        std::size_t placed = 0;
        const auto reach = [&](int x, double time) {
            start_[at(x)] = std::max(start_[at(x)], time);
            if (--waits[at(x)] == 0) { open.push({start_[at(x)], x}); }
        };
        while (!open.empty()) {
            const int x = open.top().second;
            open.pop();
            place_[at(x)] = static_cast<int>(placed);
            order_[placed++] = x;
            const auto o = at(g_->op[at(x)]);
            for (int e = g_->first_after[o]; e != g_->first_after[o + 1]; ++e) {
                const int y = x + g_->after[at(e)].shift;
                reach(y, start(x) + g_->after[at(e)].weight_us - duration(y) + duration(x));
            }
            if (next(x) >= 0) { reach(next(x), end(x)); }
        }
        return placed == order_.size();
    }

    void push(int x) noexcept {
        const int i = place_[at(x)];
        dirty_[at(i >> 6)] |= std::uint64_t{1} << (i & 63);
    }
    void push_after(int x) noexcept {
        const auto o = at(g_->op[at(x)]);
        for (int e = g_->first_after[o]; e != g_->first_after[o + 1]; ++e) { push(x + g_->after[at(e)].shift); }
        if (next(x) >= 0) { push(next(x)); }
    }
    void push_before(int x) noexcept {
        const auto o = at(g_->op[at(x)]);
        for (int e = g_->first_before[o]; e != g_->first_before[o + 1]; ++e) { push(x + g_->before[at(e)].shift); }
        if (prev(x) >= 0) { push(prev(x)); }
    }

    void propagate_starts(int from) noexcept {
        for (std::size_t w = at(from >> 6), words = dirty_.size(); w != words; ++w) {
            while (dirty_[w] != 0) {
                const auto i = w * 64 + static_cast<std::size_t>(std::countr_zero(dirty_[w]));
                dirty_[w] &= dirty_[w] - 1;
                const int x = order_[i];
                const double time = start_of(x);
                if (time == start_[at(x)]) { continue; }
                start_[at(x)] = time;
                push_after(x);
            }
        }
    }
    void propagate_tails(int from) noexcept {
        for (std::size_t w = at(from >> 6) + 1; w-- > 0;) {
            while (dirty_[w] != 0) {
                const auto bit = 63 - static_cast<std::size_t>(std::countl_zero(dirty_[w]));
                dirty_[w] &= ~(std::uint64_t{1} << bit);
                const int x = order_[w * 64 + bit];
                const double time = tail_of(x);
                if (time == tail_[at(x)]) { continue; }
                tail_[at(x)] = time;
                push_before(x);
            }
        }
    }

    const sequence_graph* g_;
    std::vector<double> start_{};
    std::vector<double> tail_{};
    std::vector<int> prev_{};
    std::vector<int> next_{};
    std::vector<int> last_{};
    std::vector<int> order_{};
    std::vector<int> place_{};
    std::vector<std::uint64_t> dirty_{};
    /// Where memory is limited: bytes held while an instance runs, and how many of them it frees.
    std::vector<std::int64_t> level_{};
    std::vector<std::int64_t> freed_{};
    std::int64_t excess_{};
    /// Per device: the newest instance of a part, or the one before it; and the one after the part.
    std::vector<std::pair<int, int>> ends_{};
    double makespan_{};
};

} // namespace pulse::detail
