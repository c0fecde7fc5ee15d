#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/bound/relaxed_problem.hpp>
#include <pulse/schedule/bound/state_search.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/search_budget.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/timed_orders.hpp>

namespace pulse::detail {

/// The result of `tighten_bound`.
struct tightened_bound {
    /// No schedule is shorter; at least the given bound, at most the best makespan known.
    double lower_bound_us{};
    /// The best makespan known, and its schedule when that is shorter than the given makespan; else no devices.
    double makespan_us{};
    schedule better{};
    std::int64_t nodes{};
    /// False when a limit or a stop request ended the search before it had tried everything.
    bool finished{};
};

/// The rounds of `tighten_bound`.
class bound_tightener {
public:
    bound_tightener(const schedule_problem& problem, const schedule_bound& bound, double upper_bound_us,
                    const search_limit& limit) :
        problem_{&problem},
        budget_{limit}, relaxer_{problem, bound}, times_(static_cast<std::size_t>(problem.devices)),
        listed_(times_.size(), 0) {
        out_.lower_bound_us = std::min(bound.makespan_us, upper_bound_us);
        out_.makespan_us = upper_bound_us;
    }

    [[nodiscard]] tightened_bound run() {
        const int devices = problem_->devices;
        const bool countable = problem_->microbatches <= 65535;
        std::vector<window> windows{};
        for (int size = devices; countable && size >= 1; --size) {
            for (int first = 0; first + size <= devices; ++first) { windows.push_back({first, size}); }
        }
        int largest = 1;
        for (std::int64_t most = 1000; !ended() && !windows.empty(); most *= 4, ++largest) {
            for (int d = 0; d != devices && !ended(); ++d) { list_times(d, most); }
            for (auto& w : windows) {
                if (ended()) { break; }
                if (w.size <= largest || w.size == devices) { search(w, most); }
            }
            std::erase_if(windows, [](const window& w) { return w.exhausted; });
        }
        out_.finished = proved() || windows.empty();
        out_.nodes = budget_.nodes();
        return std::move(out_);
    }

private:
    struct window {
        int first{};
        int size{};
        bool exhausted{};
    };
    /// Sums in another order must not make an equal makespan look shorter.
    static constexpr double rounding = 4e-10;

    [[nodiscard]] bool proved() const { return out_.lower_bound_us >= out_.makespan_us * (1 - 2 * rounding); }
    [[nodiscard]] bool ended() const { return proved() || budget_.ended(); }

    void refute(double makespan_us) {
        out_.lower_bound_us = std::max(out_.lower_bound_us, std::min(makespan_us, out_.makespan_us));
    }

    void list_times(int device, std::int64_t most) {
        const auto d = static_cast<std::size_t>(device);
        if (listed_[d] != 0) { return; }
        state_search turned{relaxer_.relax({device}, true)};
        const double below = out_.makespan_us * (1 - rounding);
        const auto found = turned.run(limits(below, most), &times_[d]);
        budget_.count(found.nodes);
        listed_[d] = found.finished ? 1 : 0;
        if (found.finished && found.order.empty()) { refute(found.makespan_us); }
    }

    void search(window& w, std::int64_t most) {
        std::vector<int> devices{};
        for (int d = w.first; d != w.first + w.size; ++d) { devices.push_back(d); }
        state_search states{relaxer_.relax(devices, false)};
        for (std::size_t i = 0; i != devices.size(); ++i) {
            const auto d = static_cast<std::size_t>(devices[i]);
            if (listed_[d] != 0) { states.guide(i, times_[d]); }
        }
        const bool whole = w.size == problem_->devices;
        for (const double part : {1.0, 0.5, 0.25}) {
            const double low = out_.lower_bound_us;
            auto limits = this->limits((low + part * (out_.makespan_us - low)) * (1 - rounding), most);
            if (whole && part == 1.0) {
                // Continue to the end with the best states, which may yield a better schedule.
                const auto layers = static_cast<std::int64_t>(relaxer_.index().ops()) * problem_->microbatches;
                limits.width = std::max<std::int64_t>(1, most / layers);
                limits.nodes = std::max(most, 4 * limits.width * layers);
            }
            const auto found = states.run(limits);
            budget_.count(found.nodes);
            if (whole && !found.order.empty()) { take(found.order); }
            if (found.finished && (whole || found.order.empty())) {
                w.exhausted = part == 1.0;
                refute(found.makespan_us);
                return;
            }
            // The relaxation has a schedule below the best one known, so it cannot prove the latter.
            w.exhausted = w.exhausted || (found.finished && part == 1.0);
            if (ended()) { return; }
        }
    }

    [[nodiscard]] state_limits limits(double below_us, std::int64_t most) const {
        state_limits out{};
        out.below_us = below_us;
        out.nodes = budget_.turn(1, most).nodes;
        out.over = [this] { return budget_.ended(); };
        return out;
    }

    void take(const std::vector<std::vector<int>>& instances) {
        device_orders orders{};
        for (const auto& passes : instances) {
            orders.emplace_back();
            for (const int i : passes) { orders.back().push_back(relaxer_.index().timed(i)); }
        }
        out_.better = timed_from_orders(*problem_, orders);
        out_.makespan_us = out_.better.makespan_us();
        out_.lower_bound_us = std::min(out_.lower_bound_us, out_.makespan_us); // equal up to rounding
    }

    const schedule_problem* problem_;
    search_budget budget_;
    problem_relaxer relaxer_;
    std::vector<completion_times> times_;
    std::vector<char> listed_;
    tightened_bound out_{};
};

/// Approximate number of states of the device with the most: counts along a chain of n passes descend, so a device has
/// (M + n over n) of them.
[[nodiscard]] inline double device_states(const indexed_problem& index) {
    double most = 0;
    for (const auto& ops : index.on_device) {
        double states = 1;
        for (std::size_t i = 1; i <= ops.size(); ++i) {
            states *= 1 + static_cast<double>(index.microbatches) / static_cast<double>(i);
        }
        most = std::max(most, states);
    }
    return most;
}

/// Raises a lower bound towards `upper_bound_us`, the makespan of the best schedule known, by searches with growing
/// numbers of states (`state_search`): over single devices from the end, whose completion times then guide searches
/// over neighbouring devices, with the others relaxed, and over all devices. When the last kind ends by itself, it
/// finds the optimum, with a better schedule when there is one. A destructive bound: it refutes makespans below a
/// threshold; where refuting all below the upper bound takes too many states, half and a quarter of the way are tried.
///
/// `bound` comes from `bound_schedule(problem)`. A node of `limit` is a state; with `seconds` unlimited the result
/// depends on the arguments alone. Throws input_error for an ill-formed problem.
[[nodiscard]] inline tightened_bound tighten_bound(const schedule_problem& problem, const schedule_bound& bound,
                                                   double upper_bound_us, const search_limit& limit) {
    return bound_tightener{problem, bound, upper_bound_us, limit}.run();
}

} // namespace pulse::detail
