#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <pulse/schedule/sequence_state.hpp>

namespace pulse {

namespace detail {

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

/// Places instances one after the other, in order of start, each at the earliest gap of its device.
class gap_filler {
public:
    /// `from_end`: the graph is mirrored, so that what frees bytes comes first.
    gap_filler(const sequence_graph& graph, bool from_end) :
        g_{&graph}, from_end_{from_end}, start_(static_cast<std::size_t>(graph.instances()), 0.0),
        seen_(start_.size(), 0), newest_(static_cast<std::size_t>(graph.ops), 0.0),
        lists_(static_cast<std::size_t>(graph.devices)) {}

    /// No lists when `go_on` says so, which is asked every few places.
    [[nodiscard]] std::vector<std::vector<int>> fill(const std::vector<int>& by_start,
                                                     const std::function<bool()>& go_on) {
        for (const int x : by_start) {
            if (work_ >= 200'000) {
                work_ = 0;
                if (!go_on()) { return {}; }
            }
            place(x);
        }
        return lists_;
    }

private:
    [[nodiscard]] static std::size_t at(int x) noexcept { return static_cast<std::size_t>(x); }
    [[nodiscard]] double end(int x) const noexcept { return start_[at(x)] + g_->duration[at(g_->op[at(x)])]; }

    void place(int x) {
        const auto o = at(g_->op[at(x)]);
        const double length = g_->duration[o];
        double ready = newest_[o];
        for (int e = g_->first_before[o]; e != g_->first_before[o + 1]; ++e) {
            ready = std::max(ready, start_[at(x + g_->before[at(e)].shift)] + g_->before[at(e)].weight_us);
        }
        auto& list = lists_[at(g_->device[o])];
        work_ += 16 + list.size() / 8;
        std::size_t i = list.size();
        while (i != 0 && end(list[i - 1]) > ready) { --i; }
        for (; i != list.size(); ++i) {
            const double from = i == 0 ? ready : std::max(ready, end(list[i - 1]));
            if (from + length > start_[at(list[i])]) { continue; }
            list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), x);
            if (fits(list, at(g_->device[o]))) { break; }
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
        }
        if (i == list.size()) { list.push_back(x); }
        start_[at(x)] = i == 0 ? ready : std::max(ready, end(list[i - 1]));
        newest_[o] = start_[at(x)] + length;
    }

    /// Whether the levels of a list stay within the limit. What is alive during a pass is the same from both ends.
    [[nodiscard]] bool fits(const std::vector<int>& list, std::size_t device) {
        if (g_->limit.empty()) { return true; }
        work_ += list.size();
        const auto n = at(g_->ops);
        std::int64_t held = 0;
        bool good = true;
        for (const int x : list) {
            const auto o = at(g_->op[at(x)]);
            const auto k = at(x) - o * at(g_->microbatches);
            std::int64_t ends = g_->frees[o];
            for (const int other : g_->partners[o]) {
                // forward the later of the two ends frees, from the end the first of the two takes
                const bool seen = seen_[at(other * g_->microbatches) + k] != 0;
                if (seen != from_end_) { ends += g_->shared[o * n + at(other)]; }
            }
            seen_[at(x)] = 1;
            held += from_end_ ? ends : g_->begins[o];
            good = good && held <= g_->limit[device];
            held -= from_end_ ? g_->begins[o] : ends;
        }
        for (const int x : list) { seen_[at(x)] = 0; }
        return good;
    }

    const sequence_graph* g_;
    bool from_end_;
    std::vector<double> start_;
    std::vector<char> seen_;
    std::vector<double> newest_;
    std::vector<std::vector<int>> lists_;
    std::size_t work_{};
};

} // namespace detail

/// Monotone justification (Valls, Ballestin, Quintanilla, 2005, kept monotone): in order of start every instance moves
/// to the earliest gap that dependencies, microbatch order and memory leave it; then the same from the end; until a
/// round gains nothing, or `go_on` says no. Never ends later than `sequences`. Requires sequences that run, within memory.
[[nodiscard]] inline std::vector<std::vector<int>> justify(
    const sequence_graph& graph, std::vector<std::vector<int>> sequences, int most_rounds = 10,
    const std::function<bool()>& go_on = [] { return true; }) {
    const sequence_graph turned = detail::mirrored(graph);
    const auto flip = [&](int x) {
        const int k = x % graph.microbatches;
        return x - k + graph.microbatches - 1 - k;
    };
    const auto turn = [&](std::vector<std::vector<int>>& lists) {
        for (auto& list : lists) {
            std::reverse(list.begin(), list.end());
            for (int& x : list) { x = flip(x); }
        }
    };
    sequence_state here{graph};
    sequence_state there{turned};
    double reached = -1;
    for (int round = 0; round != most_rounds; ++round) {
        if (!here.assign(sequences)) { return sequences; }
        if (reached >= 0 && !(here.makespan_us() < reached * (1 - 1e-12))) { break; }
        reached = here.makespan_us();
        auto moved = detail::gap_filler{graph, false}.fill(here.order(), go_on);
        if (moved.empty()) { break; }
        turn(moved);
        if (!there.assign(moved)) { return sequences; }
        moved = detail::gap_filler{turned, true}.fill(there.order(), go_on);
        if (moved.empty()) { break; }
        turn(moved);
        if (!here.assign(moved) || here.makespan_us() > reached) { return sequences; }
        sequences = std::move(moved);
    }
    return sequences;
}

} // namespace pulse
