#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/list_scheduler.hpp>
#include <pulse/schedule/periodic_pattern.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/search_budget.hpp>

namespace pulse {

/// Looks for a pattern of a given period: short for one microbatch, and within memory.
///
/// A device is a circle of length T on which its operations lie in some order with gaps between them; an operation
/// starts at the first time of its phase at which what it needs is there. Simulated annealing over orders, gaps and
/// rotations, a move in O(operations + holds), whatever the number of microbatches.
class periodic_search {
public:
    /// Starts from the operations of every device in the order of a microbatch that runs alone. Requires a period that
    /// is no shorter than the largest load, and above 0.
    periodic_search(const schedule_problem& problem, const indexed_problem& index, double period_us) :
        index_{&index}, period_{period_us}, limit_{problem.memory_limit_bytes} {
        const auto n = static_cast<std::size_t>(index.ops());
        start_.resize(n, 0);
        phase_.resize(n, 0);
        wrap_.resize(n, 0);
        std::int64_t most = 0;
        for (const int o : index.on_device.empty() ? std::vector<int>{} : index.alone) {
            mean_ += index.duration[static_cast<std::size_t>(o)] / static_cast<double>(n);
        }
        circles_.resize(index.on_device.size());
        for (std::size_t d = 0; d != circles_.size(); ++d) {
            auto& c = circles_[d];
            c.order = index.on_device[d];
            c.gap.assign(c.order.size(), 0.0);
            c.slack = std::max(0.0, period_ - index.load_us(static_cast<int>(d)));
            if (!c.gap.empty()) { c.gap.back() = c.slack; }
            lay(d);
            if (c.order.size() > 1) { movable_.push_back(d); }
        }
        if (!limit_.empty()) {
            holds_.resize(circles_.size());
            asked_.resize(circles_.size());
            for (const auto& h : problem.holds) {
                if (h.bytes == 0) { continue; }
                holds_[static_cast<std::size_t>(h.device)].push_back(
                    {index.op_of(h.begin), index.op_of(h.end), index.op_of(h.also_end), h.bytes});
                auto& asked = asked_[static_cast<std::size_t>(h.device)];
                const int b = index.op_of(h.begin);
                if (std::find(asked.begin(), asked.end(), b) == asked.end()) { asked.push_back(b); }
                most = std::max(most, h.bytes);
            }
        }
        unit_price_ = most > 0 ? 0.2 * mean_ / static_cast<double>(most) : 0.0;
        price_ = unit_price_;
    }

    /// One cooling from `warm_us` to `cold_us` in `moves` moves.
    void anneal(double warm_us, double cold_us, std::int64_t moves, detail::random_numbers& random,
                search_budget& budget) {
        if (movable_.empty()) { return; }
        const double factor = moves > 1 ? std::pow(cold_us / warm_us, 1.0 / static_cast<double>(moves)) : 1.0;
        double temperature = warm_us;
        measure();
        keep();
        int beyond = 0;
        for (std::int64_t i = 0; i != moves; ++i) {
            temperature *= factor;
            const double before = span_ + price_ * static_cast<double>(excess_);
            const std::size_t d = movable_[static_cast<std::size_t>(random.below(movable_.size()))];
            saved_ = circles_[d];
            change(d, random);
            lay(d);
            measure();
            const double worse = span_ + price_ * static_cast<double>(excess_) - before;
            if (worse > 0 && random.unit() >= std::exp(-worse / temperature)) {
                std::swap(circles_[d], saved_);
                lay(d);
                span_ = last_span_;
                excess_ = last_excess_;
            } else {
                last_span_ = span_;
                last_excess_ = excess_;
                if (excess_ < best_excess_ || (excess_ == best_excess_ && span_ < best_span_)) { keep(); }
            }
            beyond += excess_ > 0 ? 1 : 0;
            if ((i & 255) == 255) {
                price_ *= beyond > 128 ? 1.25 : 0.85;
                price_ = std::clamp(price_, unit_price_ * 0.01, unit_price_ * 100);
                beyond = 0;
            }
            if (!budget.spend(2 * static_cast<std::int64_t>(start_.size()))) { break; }
        }
    }

    /// The best pattern: least memory over the limits first, then the shortest.
    [[nodiscard]] const periodic_pattern& best() const noexcept { return best_; }
    /// Bytes over the limits of the best, summed over the devices.
    [[nodiscard]] std::int64_t excess() const noexcept { return best_excess_; }
    [[nodiscard]] double mean_us() const noexcept { return mean_; }

private:
    struct circle {
        std::vector<int> order{};
        /// Idle time before each place, summing up to the period less the load.
        std::vector<double> gap{};
        double rotation{};
        double slack{};
    };
    struct hold {
        int begin{};
        int end{};
        int also_end{};
        std::int64_t bytes{};
    };

    [[nodiscard]] static std::size_t at(int x) noexcept { return static_cast<std::size_t>(x); }

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

    void change(std::size_t d, detail::random_numbers& random) {
        auto& c = circles_[d];
        const auto count = c.order.size();
        const auto i = static_cast<std::size_t>(random.below(count));
        const auto kind = random.below(10);
        if (kind < 4) {
            std::swap(c.order[i], c.order[(i + 1) % count]);
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
            // the operation starts the moment that it can
            const int o = c.order[i];
            const double wait = start_[at(o)] - ready(at(o));
            c.rotation -= wait;
            while (c.rotation < 0) { c.rotation += period_; }
        }
    }

    [[nodiscard]] double ready(std::size_t o) const noexcept {
        double time = 0;
        for (const auto& e : index_->before[o]) {
            time = std::max(time, start_[at(e.op)] + index_->duration[at(e.op)] + e.lag_us);
        }
        return time;
    }

    /// Starts, and what they cost: the span of F and B, a little for every W that waits, memory over the limits.
    void measure() noexcept {
        double span = 0;
        double waits = 0;
        for (const int op : index_->alone) {
            const std::size_t o = at(op);
            const double time = ready(o);
            const double turns = std::ceil((time - phase_[o]) / period_ - 1e-9);
            wrap_[o] = static_cast<int>(turns);
            start_[o] = phase_[o] + turns * period_;
            const double end = start_[o] + index_->duration[o];
            if (index_->passes == 3 && op % 3 == 2) {
                waits += start_[o] - time;
            } else {
                span = std::max(span, end);
            }
        }
        span_ = span - start_[at(index_->alone.front())] + 0.5 * waits / static_cast<double>(start_.size());
        excess_ = 0;
        for (std::size_t d = 0; d != holds_.size(); ++d) {
            std::int64_t peak = 0;
            for (const int x : asked_[d]) {
                std::int64_t level = 0;
                const double here = phase_[at(x)];
                for (const auto& h : holds_[d]) {
                    const std::size_t e = start_[at(h.also_end)] > start_[at(h.end)] ? at(h.also_end) : at(h.end);
                    level += h.bytes * (wrap_[e] - wrap_[at(h.begin)] - (here < phase_[at(h.begin)] ? 1 : 0) +
                                        (phase_[e] >= here ? 1 : 0));
                }
                peak = std::max(peak, level);
            }
            excess_ += std::max<std::int64_t>(0, peak - limit_[d]);
        }
    }

    void keep() {
        best_.period_us = period_;
        best_.start = start_;
        best_span_ = last_span_ = span_;
        best_excess_ = last_excess_ = excess_;
    }

    const indexed_problem* index_;
    double period_{};
    double mean_{};
    std::vector<std::int64_t> limit_{};
    std::vector<circle> circles_{};
    std::vector<std::size_t> movable_{};
    std::vector<std::vector<hold>> holds_{};
    std::vector<std::vector<int>> asked_{};
    std::vector<double> start_{};
    std::vector<double> phase_{};
    std::vector<int> wrap_{};
    circle saved_{};
    double span_{};
    double last_span_{};
    std::int64_t excess_{};
    std::int64_t last_excess_{};
    double unit_price_{};
    double price_{};
    periodic_pattern best_{};
    double best_span_{std::numeric_limits<double>::infinity()};
    std::int64_t best_excess_{std::numeric_limits<std::int64_t>::max()};
};

} // namespace pulse
