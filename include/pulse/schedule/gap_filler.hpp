#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/schedule/sequence_graph.hpp>

namespace pulse {

/// The same graph seen from its end: microbatches counted from the last, edges turned round.
[[nodiscard]] inline sequence_graph mirrored(const sequence_graph& graph) {
    sequence_graph out = graph;
    std::swap(out.before, out.after);
    std::swap(out.first_before, out.first_after);
    const auto n = static_cast<std::size_t>(graph.ops);
    for (std::size_t a = 0; a != n; ++a) {
        for (std::size_t b = 0; b != n; ++b) { out.leads_to[a * n + b] = graph.leads_to[b * n + a]; }
    }
    return out;
}

/// Serial schedule generation (Kelley, 1963): places instances one after the other, each at the earliest gap of its
/// device that dependencies, the order of microbatches and memory leave it.
///
/// A place costs what it has to look at: the gaps from the time at which the instance is ready on, and the levels of
/// memory behind the gap.
class gap_filler {
public:
    /// An instance on its device.
    struct placed {
        int instance{};
        double start_us{};
        double end_us{};
        /// Bytes held while it runs, and those of them that are gone after it.
        std::int64_t level{};
        std::int64_t leaves{};
    };

    /// `from_end`: the graph is mirrored, so that what frees bytes comes first.
    gap_filler(const sequence_graph& graph, bool from_end) :
        g_{&graph}, from_end_{from_end}, start_(static_cast<std::size_t>(graph.instances()), 0.0),
        seen_(start_.size(), 0), newest_(static_cast<std::size_t>(graph.ops), 0.0),
        lists_(static_cast<std::size_t>(graph.devices)) {}

    /// Places all instances; everything that an instance waits for stands before it in `order`. The end of the last
    /// one, microseconds; infinite when memory leaves one of them no place.
    double fill(const std::vector<int>& order) {
        for (auto& list : lists_) { list.clear(); }
        std::fill(newest_.begin(), newest_.end(), 0.0);
        std::fill(seen_.begin(), seen_.end(), char{0});
        double span = 0;
        for (const int x : order) {
            if (!place(x)) { return std::numeric_limits<double>::infinity(); }
            span = std::max(span, newest_[at(g_->op[at(x)])]);
        }
        return span;
    }

    /// What every device runs, in order.
    [[nodiscard]] const std::vector<std::vector<placed>>& lists() const noexcept { return lists_; }

    /// The same without the times.
    [[nodiscard]] std::vector<std::vector<int>> sequences() const {
        std::vector<std::vector<int>> out{};
        for (const auto& list : lists_) {
            out.emplace_back();
            for (const auto& p : list) { out.back().push_back(p.instance); }
        }
        return out;
    }

private:
    /// Bytes of an instance at a place of its list. Bytes that two free together leave with the later of the two;
    /// from the end they come with the first.
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
        placed here{x, 0, 0, 0, 0};
        for (;; ++i) {
            here.start_us = i == 0 ? ready : std::max(ready, list[i - 1].end_us);
            here.end_us = here.start_us + length;
            if (i != list.size() && here.end_us > list[i].start_us) { continue; }
            if (g_->limit.empty() || put_bytes(here, i, d)) { break; }
            if (i == list.size()) { return false; }
        }
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), here);
        start_[at(x)] = here.start_us;
        newest_[o] = here.end_us;
        seen_[at(x)] = 1;
        return true;
    }

    /// Bytes that two free together: none unless they are of one microbatch.
    [[nodiscard]] std::int64_t shared(int x, int y) const noexcept {
        const int a = g_->op[at(x)];
        const int b = g_->op[at(y)];
        return x - a * g_->microbatches == y - b * g_->microbatches ? g_->shared[at(a) * at(g_->ops) + at(b)] : 0;
    }

    /// What `x` takes and leaves at place `i`, where some partners may run after it.
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

    /// Takes the levels that a device has with `here` at place `i`; false, with nothing changed, when they pass the
    /// limit.
    [[nodiscard]] bool put_bytes(placed& here, std::size_t i, std::size_t d) {
        auto& list = lists_[d];
        const int x = here.instance;
        const bool alone = g_->partners[at(g_->op[at(x)])].empty();
        const change own = change_at(x, i, list);
        here.level = (i == 0 ? 0 : list[i - 1].level - list[i - 1].leaves) + own.takes;
        here.leaves = own.leaves;
        if (here.level > g_->limit[d]) { return false; }
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
    /// Whether an instance has its place.
    std::vector<char> seen_;
    /// Per operation: when its newest instance ends.
    std::vector<double> newest_;
    std::vector<std::vector<placed>> lists_;
};

} // namespace pulse
