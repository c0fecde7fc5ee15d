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
#include <pulse/schedule/improve/sequence_levels.hpp>

namespace pulse::detail {

/// The sequences of all devices with their earliest starts, tails and memory levels, kept up to date under swaps of
/// neighbours.
///
/// start = the longest path to an instance, tail = the longest from its end to the end of the step (Balas, 1969). Every
/// move costs what it changes: a swap is judged in O(1) (Taillard, 1994), then the order of evaluation is repaired
/// between the two and starts and tails are propagated from there.
class sequence_state {
public:
    explicit sequence_state(const sequence_graph& graph) : g_{&graph}, levels_{graph} {
        const auto count = static_cast<std::size_t>(graph.instances());
        start_.resize(count, 0);
        tail_.resize(count, 0);
        prev_.resize(count, -1);
        next_.resize(count, -1);
        order_.resize(count, 0);
        place_.resize(count, 0);
        mark_.resize(count, 0);
        dirty_.resize(count / 64 + 1, 0);
        last_.resize(static_cast<std::size_t>(graph.devices), -1);
    }

    [[nodiscard]] const sequence_graph& graph() const noexcept { return *g_; }
    [[nodiscard]] double start(int x) const noexcept { return start_[at(x)]; }
    [[nodiscard]] double tail(int x) const noexcept { return tail_[at(x)]; }
    [[nodiscard]] int next(int x) const noexcept { return next_[at(x)]; }
    [[nodiscard]] int prev(int x) const noexcept { return prev_[at(x)]; }
    [[nodiscard]] double duration(int x) const noexcept { return g_->duration[at(g_->op[at(x)])]; }
    [[nodiscard]] double end(int x) const noexcept { return start(x) + duration(x); }
    /// Bytes that its device holds when `x` has ended, where memory is limited.
    [[nodiscard]] std::int64_t held_after(int x) const noexcept { return levels_.held_after(x); }
    /// Where `x` stands in `order()`.
    [[nodiscard]] int place(int x) const noexcept { return place_[at(x)]; }
    [[nodiscard]] double makespan_us() const noexcept { return makespan_; }
    /// Bytes over the limits, summed over all instances.
    [[nodiscard]] std::int64_t excess() const noexcept { return levels_.excess(); }
    /// Instances whose start or tail was computed, since the beginning: the work done.
    [[nodiscard]] std::int64_t visits() const noexcept { return visits_; }

    /// Takes the sequences of every device; false, and fit for nothing but another call, when they wait for each other
    /// in a circle.
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
        levels_.assign(sequences);
        if (!sort()) { return false; }
        for (std::size_t i = 0; i != order_.size(); ++i) { start_[at(order_[i])] = start_of(order_[i]); }
        for (std::size_t i = order_.size(); i-- > 0;) { tail_[at(order_[i])] = tail_of(order_[i]); }
        visits_ += 2 * static_cast<std::int64_t>(order_.size());
        from_ = 0;
        to_ = static_cast<int>(order_.size());
        exits_.clear();
        measure();
        return true;
    }

    /// Puts the instances at places [from, from + part.size()) of `order()` into the order of `part`, which names the
    /// same ones, each after all that it waits for. Costs what it changes. Requires that swaps are not confined.
    void reorder(int from, const std::vector<int>& part) {
        const int to = from + static_cast<int>(part.size());
        ends_.assign(last_.size(), {-1, -1});
        for (int i = from; i != to; ++i) {
            const int x = order_[at(i)];
            auto& ends = ends_[at(g_->device[at(g_->op[at(x)])])];
            if (const int p = prev(x); p < 0 || place_[at(p)] < from) { ends.first = p; }
            if (const int n = next(x); n < 0 || place_[at(n)] >= to) { ends.second = n; }
            levels_.take_out(x);
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
            levels_.put(x, ends.first, [&](int y) { return place_[at(y)] < place_[at(x)]; });
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

    /// Confines swaps to the instances that now stand at places [from, to) of `order()`: until the next `assign`,
    /// starts behind them and tails before them stay as they are, and the makespan is that of the paths through them.
    void confine(int from, int to) {
        from_ = from;
        to_ = to;
        exits_.clear();
        last_.assign(last_.size(), -1);
        for (int i = from; i != to; ++i) {
            const int x = order_[at(i)];
            const auto o = at(g_->op[at(x)]);
            bool exit = false;
            for (int e = g_->first_after[o]; e != g_->first_after[o + 1]; ++e) {
                exit = exit || place_[at(x + g_->after[at(e)].shift)] >= to;
            }
            if (exit) { exits_.push_back(x); }
            last_[at(g_->device[o])] = x;
        }
        measure();
    }

    /// All instances, each after everything that it waits for; what a device runs stands in its sequence.
    [[nodiscard]] const std::vector<int>& order() const noexcept { return order_; }

    /// What a swap of an instance with the one after it would do.
    struct swap_effect {
        /// Longest path through the two afterwards: the new makespan where it is above the old one.
        double through_us{};
        std::int64_t excess_change{};
    };

    /// Whether `u` and the instance after it may trade places as far as the order of microbatches is concerned.
    [[nodiscard]] bool may_swap(int u) const noexcept {
        const int v = next(u);
        if (v < 0 || place_[at(u)] < from_ || place_[at(v)] >= to_) { return false; }
        const auto a = at(g_->op[at(u)]);
        const auto b = at(g_->op[at(v)]);
        const int k = u - static_cast<int>(a) * g_->microbatches;
        const int l = v - static_cast<int>(b) * g_->microbatches;
        return k > l || g_->leads_to[a * at(g_->ops) + b] == 0;
    }

    /// Judges the swap of `u` and the instance after it, O(edges of the two).
    [[nodiscard]] swap_effect judge(int u) const noexcept {
        const int v = next(u);
        const int p = prev(u);
        const int n = next(v);
        double start_v = p >= 0 ? end(p) : 0.0;
        start_v = std::max(start_v, ready(v));
        const double start_u = std::max(start_v + duration(v), ready(u));
        double tail_u = n >= 0 ? tail(n) + duration(n) : 0.0;
        tail_u = std::max(tail_u, least_after(u));
        const double tail_v = std::max(tail_u + duration(u), least_after(v));
        const double through = std::max(start_v + duration(v) + tail_v, start_u + duration(u) + tail_u);
        return {through, levels_.change_by_swap(u, v)};
    }

    /// Swaps `u` and the instance after it; false, with nothing changed, when a path leads from one to the other.
    bool swap(int u) {
        const int v = next(u);
        if (!repair_order(u, v)) { return false; }
        const int p = prev(u);
        const int n = next(v);
        levels_.swap(u, v);
        prev_[at(v)] = p;
        next_[at(v)] = u;
        prev_[at(u)] = v;
        next_[at(u)] = n;
        if (p >= 0) { next_[at(p)] = v; }
        if (n >= 0) { prev_[at(n)] = u; }
        int& last = last_[at(g_->device[at(g_->op[at(u)])])];
        if (last == v) { last = u; }
        push(v);
        push(u);
        if (n >= 0) { push(n); }
        propagate_starts(place_[at(v)]);
        push(v);
        push(u);
        if (p >= 0) { push(p); }
        propagate_tails(place_[at(u)]);
        measure();
        return true;
    }

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

    void measure() noexcept {
        makespan_ = 0;
        for (const int x : last_) {
            if (x >= 0) { makespan_ = std::max(makespan_, end(x) + tail(x)); }
        }
        for (const int x : exits_) { makespan_ = std::max(makespan_, end(x) + tail(x)); }
    }

    /// An order in which every instance comes after all that it waits for, close to that of the starts.
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

    /// Moves u and what follows from it behind v in the order of evaluation.
    [[nodiscard]] bool repair_order(int u, int v) {
        const int from = place_[at(u)];
        const int to = place_[at(v)];
        moved_.clear();
        moved_.push_back(u);
        mark_[at(u)] = 1;
        bool circle = false;
        for (int i = from + 1; i <= to && !circle; ++i) {
            const int x = order_[at(i)];
            const int p = x == v ? -1 : prev(x);
            bool follows = p >= 0 && mark_[at(p)] != 0;
            const auto o = at(g_->op[at(x)]);
            for (int e = g_->first_before[o]; e != g_->first_before[o + 1]; ++e) {
                follows = follows || mark_[at(x + g_->before[at(e)].shift)] != 0;
            }
            if (!follows) { continue; }
            circle = x == v;
            mark_[at(x)] = 1;
            moved_.push_back(x);
        }
        if (!circle) {
            int put = from;
            for (int i = from; i <= to; ++i) {
                const int x = order_[at(i)];
                if (mark_[at(x)] != 0) { continue; }
                order_[at(put)] = x;
                place_[at(x)] = put++;
            }
            for (const int x : moved_) {
                order_[at(put)] = x;
                place_[at(x)] = put++;
            }
        }
        for (const int x : moved_) { mark_[at(x)] = 0; }
        return !circle;
    }

    void push(int x) noexcept {
        const int i = place_[at(x)];
        if (i < from_ || i >= to_) { return; }
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
        for (std::size_t w = at(from >> 6), end_word = at((to_ + 63) >> 6); w != end_word; ++w) {
            while (dirty_[w] != 0) {
                const auto i = w * 64 + static_cast<std::size_t>(std::countr_zero(dirty_[w]));
                dirty_[w] &= dirty_[w] - 1;
                const int x = order_[i];
                const double time = start_of(x);
                ++visits_;
                if (time == start_[at(x)]) { continue; }
                start_[at(x)] = time;
                push_after(x);
            }
        }
    }
    void propagate_tails(int from) noexcept {
        for (std::size_t w = at(from >> 6) + 1, first = at(from_ >> 6); w-- > first;) {
            while (dirty_[w] != 0) {
                const auto bit = 63 - static_cast<std::size_t>(std::countl_zero(dirty_[w]));
                dirty_[w] &= ~(std::uint64_t{1} << bit);
                const int x = order_[w * 64 + bit];
                const double time = tail_of(x);
                ++visits_;
                if (time == tail_[at(x)]) { continue; }
                tail_[at(x)] = time;
                push_before(x);
            }
        }
    }

    const sequence_graph* g_;
    sequence_levels levels_;
    std::vector<double> start_{};
    std::vector<double> tail_{};
    std::vector<int> prev_{};
    std::vector<int> next_{};
    std::vector<int> last_{};
    std::vector<int> order_{};
    std::vector<int> place_{};
    std::vector<char> mark_{};
    std::vector<int> moved_{};
    std::vector<std::uint64_t> dirty_{};
    std::vector<int> exits_{};
    /// Per device: the newest instance of a part, or that before it, and the one after the part.
    std::vector<std::pair<int, int>> ends_{};
    int from_{};
    int to_{};
    double makespan_{};
    std::int64_t visits_{};
};

} // namespace pulse::detail
