#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/schedule/improve/sequence_graph.hpp>

namespace pulse::detail {

/// The same graph in reverse: microbatches counted from the last, edges reversed.
[[nodiscard]] inline sequence_graph mirrored(const sequence_graph& graph) {
    sequence_graph out = graph;
    std::swap(out.before, out.after);
    std::swap(out.first_before, out.first_after);
    for (int& r : out.rank) { r = -r; }
    return out;
}

/// Serial schedule generation (Kelley, 1963): places instances one after the other, each in the earliest gap of its
/// device that dependencies, microbatch order and memory allow.
///
/// Placing an instance costs a scan of the gaps from its ready time on, and of the memory levels after the chosen gap.
/// With borders set, it fills a part of a step between the instances before and after the part.
class gap_filler {
public:
    /// An instance placed on its device.
    struct placed {
        int instance{};
        double start_us{};
        double end_us{};
        /// Bytes held while it runs, and how many of them are released after it.
        std::int64_t level{};
        std::int64_t leaves{};
    };

    /// `from_end`: the graph is mirrored, so instances that free bytes come before those that take them.
    gap_filler(const sequence_graph& graph, bool from_end) :
        g_{&graph}, from_end_{from_end}, start_(static_cast<std::size_t>(graph.instances()), 0.0),
        rest_(start_.size(), 0.0), seen_(start_.size(), 0), newest_(static_cast<std::size_t>(graph.ops), 0.0),
        borders_(static_cast<std::size_t>(graph.devices)), lists_(borders_.size()) {}

    /// The state of a device before the part that is filled, and what it runs after the part.
    struct border {
        double begin_us{};
        std::int64_t held{};
        /// Time from the end of its last instance in the part to the end of the step.
        double rest_us{};
    };
    void set_border(int device, const border& b) { borders_[at(device)] = b; }
    /// `x` comes before the part and starts at `start_us`.
    void set_before(int x, double start_us) {
        start_[at(x)] = start_us;
        seen_[at(x)] = 1;
    }
    /// `x` comes after the part.
    void set_after(int x) { seen_[at(x)] = 0; }
    /// Time from the end of `x`, inside the part, to the end of the step through successors after the part.
    void set_rest(int x, double rest_us) { rest_[at(x)] = rest_us; }

    /// Places the instances of `order`, which must list predecessors first. Returns the length of the step through
    /// them, microseconds; infinite when memory leaves no room for one of them.
    double fill(const std::vector<int>& order) {
        for (auto& list : lists_) { list.clear(); }
        std::fill(newest_.begin(), newest_.end(), 0.0); // instances before the part end before its border
        for (const int x : order) { seen_[at(x)] = 0; }
        double span = 0;
        double mean = 0;
        for (const int x : order) {
            if (!place(x)) { return std::numeric_limits<double>::infinity(); }
            span = std::max(span, newest_[at(g_->op[at(x)])] + rest_[at(x)]);
        }
        for (std::size_t d = 0; d != lists_.size(); ++d) {
            if (lists_[d].empty()) { continue; }
            const double through = lists_[d].back().end_us + borders_[d].rest_us;
            span = std::max(span, through);
            mean += through / static_cast<double>(lists_.size());
        }
        mean_us_ = mean;
        return span;
    }

    /// Sum of the lengths of the step through each device of the part, divided by the number of all devices.
    [[nodiscard]] double mean_us() const noexcept { return mean_us_; }

    [[nodiscard]] const sequence_graph& graph() const noexcept { return *g_; }
    /// The placed instances of every device, in order.
    [[nodiscard]] const std::vector<std::vector<placed>>& lists() const noexcept { return lists_; }

    /// The same without times.
    [[nodiscard]] std::vector<std::vector<int>> sequences() const {
        std::vector<std::vector<int>> out{};
        for (const auto& list : lists_) {
            out.emplace_back();
            for (const auto& p : list) { out.back().push_back(p.instance); }
        }
        return out;
    }

private:
    /// Bytes of an instance at a position in its list. Bytes that two instances free jointly leave with the later one;
    /// from the end they are taken with the first.
    struct change {
        std::int64_t takes{};
        std::int64_t leaves{};
    };

    [[nodiscard]] static std::size_t at(int x) noexcept { return static_cast<std::size_t>(x); }

    [[nodiscard]] bool place(int x) {
        const auto o = at(g_->op[at(x)]);
        const auto d = at(g_->device[o]);
        const double length = g_->duration[o];
        double ready = newest_[o];
        for (int e = g_->first_before[o]; e != g_->first_before[o + 1]; ++e) {
            ready = std::max(ready, start_[at(x + g_->before[at(e)].shift)] + g_->before[at(e)].weight_us);
        }
        auto& list = lists_[d];
        std::size_t i = list.size();
        while (i != 0 && list[i - 1].end_us > ready) { --i; }
        double start = 0;
        for (;; ++i) {
            start = std::max(ready, i == 0 ? borders_[d].begin_us : list[i - 1].end_us);
            if (i != list.size() && start + length > list[i].start_us) { continue; }
            if (g_->limit.empty() || put_bytes(x, i, d)) { break; }
            if (i == list.size()) { return false; }
        }
        list.emplace_back();
        for (std::size_t j = list.size() - 1; j != i; --j) { list[j] = list[j - 1]; }
        // field by field: copying a struct that was just written would wait for those writes
        auto& here = list[i];
        here.instance = x;
        here.start_us = start;
        here.end_us = start + length;
        here.level = level_;
        here.leaves = leaves_;
        start_[at(x)] = start;
        newest_[o] = start + length;
        seen_[at(x)] = 1;
        return true;
    }

    /// Bytes that two instances free jointly: 0 unless they are of one microbatch.
    [[nodiscard]] std::int64_t shared(int x, int y) const noexcept {
        const int a = g_->op[at(x)];
        const int b = g_->op[at(y)];
        return x - a * g_->microbatches == y - b * g_->microbatches ? g_->shared[at(a) * at(g_->ops) + at(b)] : 0;
    }

    /// Bytes that `x` takes and releases at position `i`, given which of its partners come earlier.
    [[nodiscard]] change change_at(int x, std::size_t i, const std::vector<placed>& list) const {
        const auto o = at(g_->op[at(x)]);
        std::int64_t together = 0;
        for (const int other : g_->partners[o]) {
            const int y = other * g_->microbatches + (x - static_cast<int>(o) * g_->microbatches);
            bool earlier = seen_[at(y)] != 0;
            for (std::size_t j = i; j != list.size() && earlier; ++j) { earlier = list[j].instance != y; }
            if (earlier != from_end_) { together += g_->shared[o * at(g_->ops) + at(other)]; }
        }
        return from_end_ ? change{g_->frees[o] + together, g_->begins[o]}
                         : change{g_->begins[o], g_->frees[o] + together};
    }

    /// Updates the levels of device `d` for `x` at position `i`; false, with the list unchanged, when they would exceed
    /// the limit.
    [[nodiscard]] bool put_bytes(int x, std::size_t i, std::size_t d) {
        auto& list = lists_[d];
        const bool alone = g_->partners[at(g_->op[at(x)])].empty();
        const change own = change_at(x, i, list);
        level_ = (i == 0 ? borders_[d].held : list[i - 1].level - list[i - 1].leaves) + own.takes;
        leaves_ = own.leaves;
        if (level_ > g_->limit[d]) { return false; }
        std::int64_t more = own.takes - own.leaves;
        if (more > 0 || !alone) {
            for (std::size_t j = i; j != list.size(); ++j) {
                const std::int64_t both = alone ? 0 : shared(x, list[j].instance);
                if (from_end_) { more -= both; }
                if (list[j].level + more > g_->limit[d]) { return false; }
                if (!from_end_) { more -= both; }
            }
            more = own.takes - own.leaves;
        }
        for (std::size_t j = i; j != list.size(); ++j) {
            const std::int64_t both = alone ? 0 : shared(x, list[j].instance);
            if (from_end_) { more -= both; }
            list[j].level += more;
            if (!from_end_) {
                more -= both;
                list[j].leaves += both;
            }
        }
        return true;
    }

    const sequence_graph* g_;
    bool from_end_;
    std::vector<double> start_;
    std::vector<double> rest_;
    /// Whether an instance has a place.
    std::vector<char> seen_;
    /// Per operation: the end of its newest instance in the part.
    std::vector<double> newest_;
    std::vector<border> borders_;
    double mean_us_{};
    std::vector<std::vector<placed>> lists_;
    /// The level and the released bytes that `put_bytes` found for its instance.
    std::int64_t level_{};
    std::int64_t leaves_{};
};

} // namespace pulse::detail
