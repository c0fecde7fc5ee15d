#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/schedule/construct/periodic_pattern.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/random_numbers.hpp>
#include <pulse/schedule/search_budget.hpp>

namespace pulse::detail {

/// Searches for a pattern of a given period that is short for one microbatch and within memory.
///
/// A device is a circle of length T with its operations in some order and gaps between them; an operation starts at its
/// phase in the first period in which its inputs are there. Simulated annealing over orders, gaps and rotations. The
/// number of periods between two operations depends only on their phases, so a move costs the operations of one device
/// and, when such a number changes, an integer pass over all operations.
class periodic_search {
public:
    /// Starts from the operations of every device in the order of a microbatch that runs alone. The period must be
    /// above 0 and no shorter than the largest load.
    periodic_search(const schedule_problem& problem, const indexed_problem& index, double period_us) :
        index_{&index}, period_{period_us}, limit_{problem.memory_limit_bytes} {
        const auto n = static_cast<std::size_t>(index.ops());
        phase_.resize(n, 0);
        wrap_.resize(n, 0);
        first_in_.resize(n + 1, 0);
        out_.resize(n);
        begins_.resize(n, 0);
        frees_.resize(n, 0);
        for (std::size_t o = 0; o != n; ++o) {
            mean_ += index.duration[o] / static_cast<double>(n);
            for (const auto& e : index.before[o]) {
                out_[at(e.op)].push_back(static_cast<int>(links_.size()));
                links_.push_back({e.op, static_cast<int>(o), index.duration[at(e.op)] + e.lag_us, 0});
            }
            first_in_[o + 1] = static_cast<int>(links_.size());
            const bool waits = index.passes == 3 && o % 3 == 2;
            if (!waits && std::none_of(index.after[o].begin(), index.after[o].end(),
                                       [&](const auto& e) { return index.passes != 3 || e.op % 3 != 2; })) {
                exits_.push_back(o);
            }
        }
        circles_.resize(index.on_device.size());
        pairs_.resize(circles_.size());
        base_.resize(circles_.size(), 0);
        peak_.resize(circles_.size(), 0);
        if (!limit_.empty()) {
            for (const auto& h : problem.holds) {
                begins_[at(index.op_of(h.begin))] += h.bytes;
                frees_[at(index.op_of(h.end))] += h.bytes;
                if (h.end != h.also_end && h.bytes != 0) {
                    pairs_[at(h.device)].push_back({index.op_of(h.end), index.op_of(h.also_end), h.bytes});
                }
            }
        }
        const std::int64_t most = n == 0 ? 0 : *std::max_element(begins_.begin(), begins_.end());
        unit_price_ = most > 0 ? 0.2 * mean_ / static_cast<double>(most) : 0.0;
        price_ = unit_price_;
        for (std::size_t d = 0; d != circles_.size(); ++d) {
            auto& c = circles_[d];
            c.order = index.on_device[d];
            c.gap.assign(c.order.size(), 0.0);
            c.slack = std::max(0.0, period_ - index.load_us(static_cast<int>(d)));
            if (!c.gap.empty()) { c.gap.back() = c.slack; }
            lay(d);
            if (c.order.size() > 1) { movable_.push_back(d); }
        }
        for (auto& l : links_) { l.turns = turns(l); }
        wind();
        for (std::size_t d = 0; d != circles_.size(); ++d) { stack(d); }
        measure();
        keep();
    }

    /// The goal of a search.
    enum class goal : std::uint8_t {
        fitting,  ///< the first pattern within memory: the search ends there, and length matters little
        shortest, ///< the shortest within memory: the price of bytes varies to keep the walk near the limit
    };

    /// Cools once from `warm_us` to `cold_us` in at most `moves` moves.
    void anneal(goal wanted, double warm_us, double cold_us, std::int64_t moves, random_numbers& random,
                search_budget& budget) {
        if (movable_.empty()) { return; }
        const double factor = moves > 1 ? std::pow(cold_us / warm_us, 1.0 / static_cast<double>(moves)) : 1.0;
        const double span_counts = wanted == goal::fitting ? 0.1 : 1.0;
        double temperature = warm_us;
        int beyond = 0;
        for (std::int64_t i = 0; i != moves; ++i) {
            temperature *= factor;
            const double span = span_;
            const std::int64_t excess = excess_;
            const std::size_t d = movable_[static_cast<std::size_t>(random.below(movable_.size()))];
            saved_ = circles_[d];
            change(d, random);
            place(d);
            const double worse = span_counts * (span_ - span) + price_ * static_cast<double>(excess_ - excess);
            if (worse > 0 && random.unit() >= std::exp(-worse / temperature)) {
                std::swap(circles_[d], saved_);
                place(d);
            } else if (excess_ < best_excess_ || (excess_ == best_excess_ && span_ < best_span_)) {
                keep();
            }
            if (wanted == goal::fitting && best_excess_ == 0) { return; }
            beyond += excess_ > 0 ? 1 : 0;
            if (wanted == goal::shortest && (i & 255) == 255) {
                price_ *= beyond > 128 ? 1.25 : 0.85;
                price_ = std::clamp(price_, unit_price_ * 0.01, unit_price_ * 100);
                beyond = 0;
            }
            if (!budget.spend(40)) { break; }
        }
    }

    /// The best pattern: fewest bytes over the limits first, then the shortest.
    [[nodiscard]] const periodic_pattern& best() const noexcept { return best_; }
    /// Bytes by which the best pattern exceeds the limits, summed over the devices.
    [[nodiscard]] std::int64_t excess() const noexcept { return best_excess_; }
    [[nodiscard]] double mean_us() const noexcept { return mean_; }

private:
    struct circle {
        std::vector<int> order{};
        /// Idle time before each position; sums up to the period minus the load.
        std::vector<double> gap{};
        double rotation{};
        double slack{};
    };
    /// `to` starts no earlier than `weight_us` after `from`, so at least `turns` periods later than `from`'s period.
    struct link {
        int from{};
        int to{};
        double weight_us{};
        int turns{};
    };
    /// Bytes freed by the later of two operations, at present `end`.
    struct pair {
        int end{};
        int other{};
        std::int64_t bytes{};
    };

    template <class Int>
    [[nodiscard]] static std::size_t at(Int x) noexcept {
        return static_cast<std::size_t>(x);
    }

    void lay(std::size_t d) noexcept {
        const auto& c = circles_[d];
        double time = c.rotation;
        for (std::size_t i = 0; i != c.order.size(); ++i) {
            time += c.gap[i];
            while (time >= period_) { time -= period_; }
            phase_[at(c.order[i])] = time;
            time += index_->duration[at(c.order[i])];
        }
    }

    [[nodiscard]] int turns(const link& l) const noexcept {
        const double ahead = phase_[at(l.from)] + l.weight_us - phase_[at(l.to)] - 1e-9 * period_;
        return ahead <= 0 ? 0 : 1 + static_cast<int>(ahead / period_);
    }

    void change(std::size_t d, random_numbers& random) {
        auto& c = circles_[d];
        const auto count = c.order.size();
        const auto i = static_cast<std::size_t>(random.below(count));
        const auto kind = random.below(10);
        if (kind < 4) {
            std::swap(c.order[i], c.order[i + 1 == count ? 0 : i + 1]);
        } else if (kind < 6) {
            const auto j = static_cast<std::size_t>(random.below(count));
            const auto first = c.order.begin();
            if (i < j) {
                std::rotate(first + std::ptrdiff_t(i), first + std::ptrdiff_t(i) + 1, first + std::ptrdiff_t(j) + 1);
            } else {
                std::rotate(first + std::ptrdiff_t(j), first + std::ptrdiff_t(i), first + std::ptrdiff_t(i) + 1);
            }
        } else if (kind < 8 && c.slack > 0) {
            const auto j = static_cast<std::size_t>(random.below(count));
            const double part = random.below(2) == 0 ? c.gap[i] : c.gap[i] * random.unit();
            c.gap[i] -= part;
            c.gap[j] += part;
        } else {
            // rotate so that the operation starts as early as it can
            const auto o = at(c.order[i]);
            double wait = period_;
            for (int l = first_in_[o]; l != first_in_[o + 1]; ++l) {
                const auto& e = links_[at(l)];
                wait = std::min(wait, phase_[o] - phase_[at(e.from)] - e.weight_us +
                                          period_ * (wrap_[o] - wrap_[at(e.from)]));
            }
            if (first_in_[o] == first_in_[o + 1]) { wait = phase_[o]; }
            c.rotation -= wait;
            while (c.rotation < 0) { c.rotation += period_; }
        }
    }

    /// Updates everything after the circle of a device has changed.
    void place(std::size_t d) noexcept {
        lay(d);
        bool moved = false;
        const auto look = [&](link& l) {
            const int now = turns(l);
            moved = moved || now != l.turns;
            l.turns = now;
        };
        for (const int o : circles_[d].order) {
            for (int l = first_in_[at(o)]; l != first_in_[at(o) + 1]; ++l) { look(links_[at(l)]); }
            for (const int l : out_[at(o)]) { look(links_[at(l)]); }
        }
        if (moved) { wind(); }
        stack(d);
        measure();
    }

    /// Sets the period in which every operation starts, and the bytes on the devices that follow from it.
    void wind() noexcept {
        for (const int o : index_->alone) {
            int turn = 0;
            for (int l = first_in_[at(o)]; l != first_in_[at(o) + 1]; ++l) {
                turn = std::max(turn, wrap_[at(links_[at(l)].from)] + links_[at(l)].turns);
            }
            wrap_[at(o)] = turn;
        }
        for (std::size_t d = 0; d != limit_.size(); ++d) {
            if (!pairs_[d].empty()) { stack(d); }
            std::int64_t sum = 0;
            for (const int o : index_->on_device[d]) { sum += wrap_[at(o)] * (frees_[at(o)] - begins_[at(o)]); }
            base_[d] = sum;
        }
    }

    /// Sets the highest level of a device within one period, without its base.
    void stack(std::size_t d) noexcept {
        if (limit_.empty()) { return; }
        for (auto& p : pairs_[d]) {
            const auto time = [&](int o) { return phase_[at(o)] + period_ * wrap_[at(o)]; };
            if (time(p.other) <= time(p.end)) { continue; }
            std::swap(p.end, p.other);
            frees_[at(p.other)] -= p.bytes;
            frees_[at(p.end)] += p.bytes;
            base_[d] += p.bytes * (wrap_[at(p.end)] - wrap_[at(p.other)]);
        }
        const auto& order = circles_[d].order;
        const std::size_t count = order.size();
        std::size_t first = 0;
        for (std::size_t i = 1; i < count; ++i) {
            if (phase_[at(order[i])] < phase_[at(order[first])]) { first = i; }
        }
        std::int64_t level = 0;
        std::int64_t peak = 0;
        for (std::size_t i = 0, j = first; i != count; ++i, j = j + 1 == count ? 0 : j + 1) {
            level += begins_[at(order[j])];
            peak = std::max(peak, level);
            level -= frees_[at(order[j])];
        }
        peak_[d] = peak;
    }

    /// Sets the cost: the span of F and B, a little for every waiting W, and memory over the limits.
    void measure() noexcept {
        double span = 0;
        for (const std::size_t o : exits_) {
            span = std::max(span, phase_[o] + period_ * wrap_[o] + index_->duration[o]);
        }
        double waits = 0;
        for (std::size_t o = 2; index_->passes == 3 && o < phase_.size(); o += 3) {
            waits += phase_[o] - phase_[o - 1] + period_ * (wrap_[o] - wrap_[o - 1]);
        }
        span_ = span - phase_[at(index_->alone.front())] + 0.5 * waits / static_cast<double>(phase_.size());
        excess_ = 0;
        for (std::size_t d = 0; d != limit_.size(); ++d) {
            excess_ += std::max<std::int64_t>(0, base_[d] + peak_[d] - limit_[d]);
        }
    }

    void keep() {
        best_.period_us = period_;
        best_.start.resize(phase_.size());
        for (std::size_t o = 0; o != phase_.size(); ++o) { best_.start[o] = phase_[o] + period_ * wrap_[o]; }
        best_span_ = span_;
        best_excess_ = excess_;
    }

    const indexed_problem* index_;
    double period_{};
    double mean_{};
    std::vector<std::int64_t> limit_{};
    std::vector<circle> circles_{};
    std::vector<std::size_t> movable_{};
    std::vector<link> links_{};
    std::vector<int> first_in_{};
    std::vector<std::vector<int>> out_{};
    std::vector<std::size_t> exits_{};
    std::vector<std::int64_t> begins_{};
    std::vector<std::int64_t> frees_{};
    std::vector<std::vector<pair>> pairs_{};
    std::vector<double> phase_{};
    std::vector<int> wrap_{};
    /// Per device: bytes held over whole periods, and the peak on top of them.
    std::vector<std::int64_t> base_{};
    std::vector<std::int64_t> peak_{};
    circle saved_{};
    double span_{};
    std::int64_t excess_{};
    double unit_price_{};
    double price_{};
    periodic_pattern best_{};
    double best_span_{std::numeric_limits<double>::infinity()};
    std::int64_t best_excess_{std::numeric_limits<std::int64_t>::max()};
};

} // namespace pulse::detail
