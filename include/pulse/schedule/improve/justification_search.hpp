#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pulse/schedule/improve/gap_filler.hpp>
#include <pulse/schedule/improve/sequence_graph.hpp>
#include <pulse/schedule/improve/sequence_state.hpp>
#include <pulse/schedule/random_numbers.hpp>
#include <pulse/schedule/search_budget.hpp>

namespace pulse::detail {

/// Iterated justification (after Tormos and Lova, 2001) of parts of a step: shifts some instances of a part in the
/// order of ends, places the whole part again in that order, as early as possible or first as late and then as early as
/// possible, and continues from any result that is not much longer. Instances before and after the part stay, and the
/// longest paths through both give the new length of the step. So a try costs only the part, and rebuilds warm-up,
/// steady state or cool-down within memory.
class justification_search {
public:
    explicit justification_search(const sequence_graph& graph) :
        g_{&graph}, turned_{mirrored(graph)}, state_{graph}, early_{graph, false}, late_{turned_, true},
        key_(static_cast<std::size_t>(graph.instances()), 0.0), spot_(key_.size(), 0),
        before_(static_cast<std::size_t>(graph.devices), -1) {
        for (const double d : graph.duration) {
            timeless_ = timeless_ || d == 0;
            mean_us_ += d / static_cast<double>(graph.ops);
        }
        std::vector<double> load(at(graph.devices), 0.0);
        for (int o = 0; o != graph.ops; ++o) { load[at(graph.device[at(o)])] += graph.duration[at(o)]; }
        for (const double l : load) { longest_us_ = std::max(longest_us_, l); }
    }

    /// Mean duration of a pass, microseconds: the unit of temperatures.
    [[nodiscard]] double mean_us() const noexcept { return mean_us_; }
    [[nodiscard]] double best_us() const noexcept { return best_us_; }
    [[nodiscard]] const std::vector<std::vector<int>>& best() const noexcept { return best_; }

    /// Parts undone because they did not fit back as computed: 0 unless some passes have no duration.
    [[nodiscard]] std::int64_t refused() const noexcept { return refused_; }

    /// Starts from these sequences and forgets the best; false when they deadlock or exceed memory.
    [[nodiscard]] bool take(const std::vector<std::vector<int>>& sequences) {
        if (!go_to(sequences)) { return false; }
        best_ = here_;
        best_us_ = now_us_;
        return true;
    }

    /// Runs tries that take `work` steps in all, about ten nanoseconds each. Accepts results longer by about `warm_us`
    /// at the beginning and by nothing at the end. Ends early when `bound_us` is reached or the budget is used up. True
    /// when the best improved.
    bool anneal(double warm_us, std::int64_t work, double bound_us, random_numbers& random, search_budget& budget) {
        const double before = best_us_;
        const double enough = bound_us * (1 + 1e-12);
        bool more = true;
        for (std::int64_t done = 0; more && done < work && best_us_ > enough;) {
            open(random);
            const std::int64_t step = 10 * static_cast<std::int64_t>(now_.size());
            bool moved = false;
            double said_us = now_us_;
            double least = best_us_ * (1 - 1e-12);
            kept_best_.clear();
            for (int i = 0; more && i != steps_per_part; ++i) {
                const double part = std::max(0.0, 1 - static_cast<double>(done) / static_cast<double>(work));
                const double found = shifted_span(random);
                const double cost = found + early_.mean_us();
                if (cost <= now_cost_ - warm_us * part * std::log(1 - random.unit())) {
                    now_cost_ = cost;
                    said_us = found;
                    sort_by_end(early_, now_);
                    moved = true;
                    if (found < least) {
                        least = found;
                        kept_best_ = now_;
                    }
                }
                done += step;
                more = budget.spend(step);
                if (least <= enough) { break; }
            }
            if (moved) { close(kept_best_.empty() ? said_us : least); }
        }
        return best_us_ < before;
    }

private:
    static constexpr int steps_per_part = 20;

    struct entry {
        double time{};
        int instance{};
        /// Its previous position, which breaks ties between equal times.
        int place{};
    };

    [[nodiscard]] static std::size_t at(int x) noexcept { return static_cast<std::size_t>(x); }

    /// Latest end first; an instance comes before those that it waits for.
    struct last_end_first {
        const sequence_graph* in{};

        [[nodiscard]] bool operator()(const entry& a, const entry& b) const noexcept {
            if (a.time != b.time) { return a.time > b.time; }
            const int one = in->rank[at(in->op[at(a.instance)])];
            const int two = in->rank[at(in->op[at(b.instance)])];
            return one != two ? one > two : a.instance > b.instance;
        }
    };

    static void number(std::vector<entry>& entries) noexcept {
        int place = 0;
        for (auto& e : entries) { e.place = place++; }
    }

    /// The instances of a filler, latest end first.
    void sort_by_end(const gap_filler& filler, std::vector<entry>& out) {
        out.clear();
        const last_end_first order{&filler.graph()};
        borders_.assign(1, 0);
        for (const auto& list : filler.lists()) {
            for (std::size_t i = list.size(); i-- > 0;) { out.push_back({list[i].end_us, list[i].instance, 0}); }
            borders_.push_back(static_cast<std::ptrdiff_t>(out.size()));
        }
        if (timeless_) {
            std::sort(out.begin(), out.end(), order); // a list may order equal times differently
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

    /// Lists the instances of `entries` as the mirrored graph numbers them.
    void flip(const std::vector<entry>& entries) {
        order_.clear();
        for (const auto& e : entries) { order_.push_back(g_->flipped(e.instance)); }
    }

    /// Makes `sequences` the current schedule; false when they deadlock or exceed memory.
    [[nodiscard]] bool go_to(const std::vector<std::vector<int>>& sequences) {
        if (!state_.assign(sequences) || state_.excess() > 0) { return false; }
        here_ = sequences;
        for (const auto& list : here_) {
            for (std::size_t i = 0; i != list.size(); ++i) { spot_[at(list[i])] = static_cast<int>(i); }
        }
        now_us_ = state_.makespan_us();
        return true;
    }

    /// Lists where a longest path of the step begins and where it arrives from another device. Between two such places
    /// one device works without a pause, which no other order makes shorter.
    void list_turns() {
        const double slack = 1e-9 * now_us_;
        turns_.clear();
        int x = state_.order().front();
        for (const auto& list : here_) {
            if (!list.empty() && state_.end(list.back()) > state_.end(x)) { x = list.back(); }
        }
        for (;;) {
            const int p = state_.prev(x);
            if (p >= 0 && state_.end(p) >= state_.start(x) - slack) {
                x = p;
                continue;
            }
            turns_.push_back(state_.place(x));
            const auto o = at(g_->op[at(x)]);
            int next = -1;
            for (int e = g_->first_before[o]; e != g_->first_before[o + 1] && next < 0; ++e) {
                const int y = x + g_->before[at(e)].shift;
                if (state_.start(y) + g_->before[at(e)].weight_us >= state_.start(x) - slack) { next = y; }
            }
            if (next < 0) { return; }
            x = next;
        }
    }

    /// Chooses the part of the step to change: consecutive instances in an order of evaluation, mostly around a place
    /// from `list_turns`. Instances before it keep their starts, those after it their order on the devices.
    void open(random_numbers& random) {
        const auto& order = state_.order();
        const int count = static_cast<int>(order.size());
        const int size = std::min(count, static_cast<int>((1.5 + 6 * random.unit()) * g_->ops));
        int from = static_cast<int>(random.below(at(count - size) + 1));
        if (random.below(8) != 0) {
            list_turns();
            const int turn = turns_[random.below(turns_.size())];
            from = std::clamp(turn - static_cast<int>(random.below(at(size))), 0, count - size);
        }
        const int to = from + size;
        from_ = from;
        const auto inside = [&](int x) { return state_.place(x) >= from && state_.place(x) < to; };
        std::fill(key_.begin(), key_.end(), std::numeric_limits<double>::infinity());
        now_.clear();
        now_cost_ = now_us_;
        for (int i = from; i != to; ++i) {
            const int x = order[at(i)];
            const int o = g_->op[at(x)];
            const int k = x - o * g_->microbatches;
            const int d = g_->device[at(o)];
            now_.push_back({state_.end(x), x, 0});
            for (int e = g_->first_before[at(o)]; e != g_->first_before[at(o) + 1]; ++e) {
                const int y = x + g_->before[at(e)].shift;
                if (!inside(y)) { early_.set_before(y, state_.start(y)); }
            }
            double rest = 0;
            for (int e = g_->first_after[at(o)]; e != g_->first_after[at(o) + 1]; ++e) {
                const int y = x + g_->after[at(e)].shift;
                if (inside(y)) { continue; }
                late_.set_before(g_->flipped(y), state_.tail(y));
                rest = std::max(rest, state_.tail(y) + g_->after[at(e)].weight_us);
            }
            early_.set_rest(x, rest);
            for (const int other : g_->partners[at(o)]) {
                const int y = other * g_->microbatches + k;
                if (state_.place(y) < from) {
                    early_.set_before(y, state_.start(y));
                    late_.set_after(g_->flipped(y));
                } else if (state_.place(y) >= to) {
                    early_.set_after(y);
                    late_.set_before(g_->flipped(y), state_.tail(y));
                }
            }
            const int p = state_.prev(x);
            const int n = state_.next(x);
            if (p < 0 || !inside(p)) { before_[at(d)] = spot_[at(x)] - 1; }
            if (n < 0 || !inside(n)) {
                const int q = before_[at(d)] < 0 ? -1 : here_[at(d)][at(before_[at(d)])];
                const double rest_us = n < 0 ? 0.0 : state_.tail(n) + state_.duration(n);
                now_cost_ += (state_.end(x) + rest_us) / static_cast<double>(g_->devices);
                early_.set_border(d, {q < 0 ? 0.0 : state_.end(q), q < 0 ? 0 : state_.held_after(q), rest_us});
                late_.set_border(d, {rest_us, n < 0 ? 0 : state_.held_after(x), 0});
            }
        }
        std::sort(now_.begin(), now_.end(), last_end_first{g_});
        number(now_);
    }

    /// Puts the part, or its best version when that beats the best step so far, back between the instances before and
    /// after it. The step is then `said_us` long and within memory, as computed, except that passes of no duration may
    /// be evaluated in another order than the one in which they were placed.
    void close(double said_us) {
        const auto& part = kept_best_.empty() ? now_ : kept_best_;
        order_.clear();
        for (std::size_t i = part.size(); i-- > 0;) { order_.push_back(part[i].instance); }
        const auto first = state_.order().begin() + from_;
        const std::vector<int> was(first, first + static_cast<std::ptrdiff_t>(order_.size()));
        const double longest = std::max(said_us, now_us_) * (1 + 1e-9);
        put(order_);
        bool fits = true;
        if (timeless_) {
            fits = state_.assign(here_);
        } else {
            state_.reorder(from_, order_);
        }
        now_us_ = state_.makespan_us();
        if (!fits || state_.excess() > 0 || now_us_ > longest) {
            ++refused_;
            put(was);
            (void)go_to(here_);
        } else if (now_us_ < best_us_ * (1 - 1e-12)) {
            best_us_ = now_us_;
            best_ = here_;
        }
    }

    /// Writes the part into the sequences in this order.
    void put(const std::vector<int>& part) {
        auto last = before_;
        for (const int x : part) {
            const auto d = at(g_->device[at(g_->op[at(x)])]);
            spot_[at(x)] = ++last[d];
            here_[d][at(spot_[at(x)])] = x;
        }
    }

    /// Shifts the current part and fills it again: from its beginning, or, one time in three, first from its end.
    /// Returns the length of the step.
    [[nodiscard]] double shifted_span(random_numbers& random) {
        shift(random);
        if (random.below(3) != 0) {
            order_.clear();
            for (std::size_t i = shifted_.size(); i-- > 0;) { order_.push_back(shifted_[i].instance); }
            return early_.fill(order_);
        }
        flip(shifted_);
        if (!(late_.fill(order_) < std::numeric_limits<double>::infinity())) {
            return std::numeric_limits<double>::infinity();
        }
        sort_by_end(late_, shifted_);
        flip(shifted_);
        return early_.fill(order_);
    }

    /// Takes the end of every instance of the part as its key, moves the keys of some, and sorts by key again.
    void shift(random_numbers& random) {
        const int m = g_->microbatches;
        const double first_us = now_.back().time;
        const double span = now_.front().time - first_us;
        const double width = span * (0.1 + 0.9 * random.unit() * random.unit());
        const double from = first_us + random.unit() * (span + width) - width;
        const double far = longest_us_ * random.unit();
        const double share = random.unit();
        const auto kind = random.below(3);
        const int chosen = now_[random.below(now_.size())].instance;
        const int op = g_->op[at(chosen)];
        const int first = chosen - op * m;
        const double by = 2 * far * (2 * random.unit() - 1);
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
    std::vector<double> key_;
    /// The part, and its best version where that beats all before.
    std::vector<entry> now_{};
    std::vector<entry> kept_best_{};
    std::vector<entry> kept_{};
    std::vector<entry> moved_{};
    std::vector<entry> shifted_{};
    std::vector<std::ptrdiff_t> borders_{};
    std::vector<int> turns_{};
    std::vector<int> order_{};
    /// Cost of the part when it was last accepted: the length of the step through it plus that through its devices on
    /// average, which tells schedules with equal makespans apart.
    double now_cost_{};
    std::int64_t refused_{};
    double longest_us_{};
    bool timeless_{};
    double now_us_{std::numeric_limits<double>::infinity()};
    double mean_us_{};
    double best_us_{std::numeric_limits<double>::infinity()};
    std::vector<std::vector<int>> here_{};
    std::vector<std::vector<int>> best_{};
    /// Position of the part's beginning in the order of the state.
    int from_{};
    /// Position of every instance in its sequence, and per device the last position before the part.
    std::vector<int> spot_;
    std::vector<int> before_;
};

} // namespace pulse::detail
