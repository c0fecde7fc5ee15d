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
    /// `from_end`: the graph is mirrored, so that what frees bytes comes first.
    gap_filler(const sequence_graph& graph, bool from_end) :
        g_{&graph}, from_end_{from_end}, start_(static_cast<std::size_t>(graph.instances()), 0.0),
        leaves_(start_.size(), 0), placed_(start_.size(), 0), newest_(static_cast<std::size_t>(graph.ops), 0.0),
        lists_(static_cast<std::size_t>(graph.devices)), levels_(lists_.size()) {}

    /// Places all instances; everything that an instance waits for stands before it in `order`. The end of the last
    /// one, microseconds; infinite when memory leaves one of them no place.
    double fill(const std::vector<int>& order) {
        for (auto& list : lists_) { list.clear(); }
        for (auto& levels : levels_) { levels.clear(); }
        std::fill(newest_.begin(), newest_.end(), 0.0);
        std::fill(placed_.begin(), placed_.end(), char{0});
        double span = 0;
        for (const int x : order) {
            if (!place(x)) { return std::numeric_limits<double>::infinity(); }
            span = std::max(span, end(x));
        }
        return span;
    }

    [[nodiscard]] const std::vector<double>& start() const noexcept { return start_; }
    [[nodiscard]] double end(int x) const noexcept { return start_[at(x)] + g_->duration[at(g_->op[at(x)])]; }
    /// What every device runs, in order.
    [[nodiscard]] const std::vector<std::vector<int>>& lists() const noexcept { return lists_; }

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
        while (i != 0 && end(list[i - 1]) > ready) { --i; }
        for (;; ++i) {
            const double from = i == 0 ? ready : std::max(ready, end(list[i - 1]));
            if (i != list.size() && from + length > start_[at(list[i])]) { continue; }
            if (g_->limit.empty() || put_bytes(x, i, d)) {
                start_[at(x)] = from;
                break;
            }
            if (i == list.size()) { return false; }
        }
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), x);
        newest_[o] = end(x);
        placed_[at(x)] = 1;
        return true;
    }

    /// Whether `y` is of the same microbatch as `x` and frees bytes together with it.
    [[nodiscard]] std::int64_t shared(int x, int y) const noexcept {
        const int a = g_->op[at(x)];
        const int b = g_->op[at(y)];
        return x - a * g_->microbatches == y - b * g_->microbatches ? g_->shared[at(a) * at(g_->ops) + at(b)] : 0;
    }

    /// What `x` takes and leaves at place `i`, where some partners may run after it.
    [[nodiscard]] change change_at(int x, std::size_t i, const std::vector<int>& list) const {
        const auto o = at(g_->op[at(x)]);
        std::int64_t together = 0;
        for (const int other : g_->partners[o]) {
            const int y = other * g_->microbatches + (x - static_cast<int>(o) * g_->microbatches);
            const auto from = list.begin() + static_cast<std::ptrdiff_t>(i);
            const bool earlier = placed_[at(y)] != 0 && std::find(from, list.end(), y) == list.end();
            if (earlier != from_end_) { together += g_->shared[o * at(g_->ops) + at(other)]; }
        }
        return from_end_ ? change{g_->frees[o] + together, g_->begins[o]}
                         : change{g_->begins[o], g_->frees[o] + together};
    }

    /// Takes the levels that a device has with `x` at place `i`; false, with nothing changed, when they pass the limit.
    [[nodiscard]] bool put_bytes(int x, std::size_t i, std::size_t d) {
        const auto& list = lists_[d];
        auto& levels = levels_[d];
        const bool alone = g_->partners[at(g_->op[at(x)])].empty();
        const change own = change_at(x, i, list);
        const std::int64_t held = i == 0 ? 0 : levels[i - 1] - leaves_[at(list[i - 1])];
        if (held + own.takes > g_->limit[d]) { return false; }
        std::int64_t more = own.takes - own.leaves;
        if (more > 0 || !alone) {
            for (std::size_t j = i; j != list.size(); ++j) {
                const std::int64_t both = alone ? 0 : shared(x, list[j]);
                if (from_end_) { more -= both; }
                if (levels[j] + more > g_->limit[d]) { return false; }
                if (!from_end_) { more -= both; }
            }
            more = own.takes - own.leaves;
        }
        for (std::size_t j = i; j != list.size(); ++j) {
            const std::int64_t both = alone ? 0 : shared(x, list[j]);
            if (from_end_) { more -= both; }
            levels[j] += more;
            if (!from_end_) {
                more -= both;
                leaves_[at(list[j])] += both;
            }
        }
        levels.insert(levels.begin() + static_cast<std::ptrdiff_t>(i), held + own.takes);
        leaves_[at(x)] = own.leaves;
        return true;
    }

    const sequence_graph* g_;
    bool from_end_;
    std::vector<double> start_;
    /// Bytes that are no longer held after each placed instance.
    std::vector<std::int64_t> leaves_;
    std::vector<char> placed_;
    std::vector<double> newest_;
    std::vector<std::vector<int>> lists_;
    /// Bytes during every instance of a list.
    std::vector<std::vector<std::int64_t>> levels_;
};

} // namespace pulse
