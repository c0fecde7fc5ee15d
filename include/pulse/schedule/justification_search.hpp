#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pulse/schedule/gap_filler.hpp>
#include <pulse/schedule/list_scheduler.hpp>
#include <pulse/schedule/search_budget.hpp>
#include <pulse/schedule/sequence_graph.hpp>
#include <pulse/schedule/sequence_state.hpp>

namespace pulse {

/// Iterated justification (after Tormos and Lova, 2001): shifts some of a schedule's instances in the order of their
/// ends, places all of them again as late as they can be in that order, then as early as they can be, and goes on from
/// what is not much longer. One step rebuilds warm-up, steady state and cool-down together, within memory, where a walk
/// over swaps would have to cross many schedules that are worse.
class justification_search {
public:
    explicit justification_search(const sequence_graph& graph) :
        g_{&graph}, turned_{mirrored(graph)}, state_{graph}, early_{graph, false}, late_{turned_, true},
        rank_(static_cast<std::size_t>(graph.ops), 0), key_(static_cast<std::size_t>(graph.instances()), 0.0) {
        for (const double d : graph.duration) { timeless_ = timeless_ || d == 0; }
        // The number of operations that lead to one grows along every path.
        for (int o = 0; o != graph.ops; ++o) {
            for (int a = 0; a != graph.ops; ++a) { rank_[at(o)] += graph.leads_to[at(a) * at(graph.ops) + at(o)]; }
        }
        std::vector<double> load(at(graph.devices), 0.0);
        for (int o = 0; o != graph.ops; ++o) { load[at(graph.device[at(o)])] += graph.duration[at(o)]; }
        for (const double l : load) { longest_us_ = std::max(longest_us_, l); }
    }

    [[nodiscard]] double best_us() const noexcept { return best_us_; }
    [[nodiscard]] const std::vector<std::vector<int>>& best() const noexcept { return best_; }

    /// Starts from these sequences and forgets the best; false when they wait for each other in a circle or do not fit
    /// into memory.
    [[nodiscard]] bool take(const std::vector<std::vector<int>>& sequences) {
        if (!state_.assign(sequences) || state_.excess() > 0) { return false; }
        best_ = sequences;
        best_us_ = now_us_ = state_.makespan_us();
        now_.clear();
        for (const auto& list : sequences) {
            for (const int x : list) { now_.push_back({state_.end(x), x, 0}); }
        }
        std::sort(now_.begin(), now_.end(), last_end_first{this});
        number(now_);
        return true;
    }

    /// Steps that take `work` in all, about ten nanoseconds each, and accept what is longer by `warm_us` or so in the
    /// beginning and by nothing in the end. Ends early when `bound_us` is reached or the budget is used up. True when
    /// the best improved.
    bool anneal(double warm_us, std::int64_t work, double bound_us, detail::random_numbers& random,
                search_budget& budget) {
        const double before = best_us_;
        const double enough = bound_us * (1 + 1e-12);
        const std::int64_t step = 10 * g_->instances();
        for (std::int64_t done = 0; done < work && best_us_ > enough; done += step) {
            const double part = 1 - static_cast<double>(done) / static_cast<double>(work);
            const double bar = now_us_ - warm_us * part * std::log(1 - random.unit());
            shift(random);
            flip(shifted_);
            if (late_.fill(order_) < std::numeric_limits<double>::infinity()) {
                sort_by_end(late_, shifted_);
                flip(shifted_);
                const double found = early_.fill(order_);
                if (found <= bar) {
                    now_us_ = found;
                    sort_by_end(early_, now_);
                    if (found < best_us_ * (1 - 1e-12)) {
                        best_us_ = found;
                        best_ = early_.sequences();
                    }
                }
            }
            if (!budget.spend(step)) { break; }
        }
        return best_us_ < before;
    }

private:
    struct entry {
        double time{};
        int instance{};
        /// Where it stood, which decides among equal times.
        int place{};
    };

    [[nodiscard]] static std::size_t at(int x) noexcept { return static_cast<std::size_t>(x); }

    /// Last ends first; what waits for another one comes before it. `sign` is -1 when seen from the end.
    struct last_end_first {
        const justification_search* in{};
        int sign{1};

        [[nodiscard]] bool operator()(const entry& a, const entry& b) const noexcept {
            if (a.time != b.time) { return a.time > b.time; }
            const int one = sign * in->rank_[at(in->g_->op[at(a.instance)])];
            const int two = sign * in->rank_[at(in->g_->op[at(b.instance)])];
            return one != two ? one > two : a.instance > b.instance;
        }
    };

    static void number(std::vector<entry>& entries) noexcept {
        int place = 0;
        for (auto& e : entries) { e.place = place++; }
    }

    /// The instances of a filler, last ends first.
    void sort_by_end(const gap_filler& filler, std::vector<entry>& out) {
        out.clear();
        const last_end_first order{this, &filler == &early_ ? 1 : -1};
        borders_.assign(1, 0);
        for (const auto& list : filler.lists()) {
            for (std::size_t i = list.size(); i-- > 0;) { out.push_back({list[i].end_us, list[i].instance, 0}); }
            borders_.push_back(static_cast<std::ptrdiff_t>(out.size()));
        }
        if (timeless_) {
            std::sort(out.begin(), out.end(), order); // a list may hold them in another order
        } else {
            for (std::size_t width = 1; width + 1 < borders_.size(); width *= 2) {
                for (std::size_t i = 0; i + width + 1 < borders_.size(); i += 2 * width) {
                    const std::size_t end = std::min(i + 2 * width, borders_.size() - 1);
                    std::inplace_merge(out.begin() + borders_[i], out.begin() + borders_[i + width],
                                       out.begin() + borders_[end], order);
                }
            }
        }
        number(out);
    }

    /// The instances of `entries` as they are numbered from the other end.
    void flip(const std::vector<entry>& entries) {
        order_.clear();
        for (const auto& e : entries) {
            const int k = e.instance - g_->op[at(e.instance)] * g_->microbatches;
            order_.push_back(e.instance - k + g_->microbatches - 1 - k);
        }
    }

    /// Gives every instance of the present schedule its end as a key, moves the keys of some, and sorts by key again.
    void shift(detail::random_numbers& random) {
        const int m = g_->microbatches;
        const double width = now_us_ * (0.1 + 0.9 * random.unit() * random.unit());
        const double from = random.unit() * (now_us_ + width) - width;
        const double far = longest_us_ * random.unit();
        const double share = random.unit();
        const auto kind = random.below(3);
        const int op = static_cast<int>(random.below(at(g_->ops)));
        const double by = 2 * far * (2 * random.unit() - 1);
        const int first = static_cast<int>(random.below(at(m)));
        const int count = 1 + static_cast<int>(random.below(at(m)));
        kept_.clear();
        moved_.clear();
        for (const auto& e : now_) {
            const int x = e.instance;
            const int o = g_->op[at(x)];
            const int k = x - o * m;
            const bool inside = e.time >= from && e.time <= from + width;
            double key = e.time;
            if (kind == 0) {
                if (inside && random.unit() < share) { key += far * (2 * random.unit() - 1); }
            } else if (kind == 1) {
                if (o == op && k >= first && k < first + count) { key += by; }
            } else if (k == first && inside) {
                key += by;
            }
            for (int i = g_->first_after[at(o)]; i != g_->first_after[at(o) + 1]; ++i) {
                key = std::min(key, key_[at(x + g_->after[at(i)].shift)]);
            }
            if (k + 1 != m) { key = std::min(key, key_[at(x + 1)]); }
            key_[at(x)] = key;
            (key == e.time ? kept_ : moved_).push_back({key, x, e.place});
        }
        const auto by_key = [](const entry& a, const entry& b) {
            return a.time != b.time ? a.time > b.time : a.place < b.place;
        };
        std::sort(moved_.begin(), moved_.end(), by_key);
        shifted_.resize(now_.size());
        std::merge(kept_.begin(), kept_.end(), moved_.begin(), moved_.end(), shifted_.begin(), by_key);
    }

    const sequence_graph* g_;
    sequence_graph turned_;
    sequence_state state_;
    gap_filler early_;
    gap_filler late_;
    std::vector<int> rank_;
    std::vector<double> key_;
    std::vector<entry> now_{};
    std::vector<entry> kept_{};
    std::vector<entry> moved_{};
    std::vector<entry> shifted_{};
    std::vector<std::ptrdiff_t> borders_{};
    std::vector<int> order_{};
    double longest_us_{};
    bool timeless_{};
    double now_us_{std::numeric_limits<double>::infinity()};
    double best_us_{std::numeric_limits<double>::infinity()};
    std::vector<std::vector<int>> best_{};
};

} // namespace pulse
