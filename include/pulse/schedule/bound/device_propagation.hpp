#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/bound/order_statistic_heads.hpp>
#include <pulse/schedule/bound/relaxed_problem.hpp>
#include <pulse/schedule/bound/state_limits.hpp>
#include <pulse/schedule/bound/state_search.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// What all schedules that are shorter than some makespan have in common.
struct device_windows {
    /// The makespan that they were narrowed under.
    double below_us{};
    /// Heads and tails; its makespan does not count.
    schedule_bound bound{};
    /// Per device, of its last searches in either direction; null where there was none.
    std::vector<std::shared_ptr<const completion_times>> forward{};
    std::vector<std::shared_ptr<const completion_times>> turned{};
    /// Per device: how much room its passes had in all when it was last searched, microseconds.
    std::vector<double> room{};
};

/// About how many states a device has, the one with the most: counts of a chain of n passes descend, so there are
/// (M + n over n) of them.
[[nodiscard]] constexpr double device_states(const indexed_problem& index) {
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

/// With more, searches over single devices take too long to be made for all of them and again.
inline constexpr double few_device_states = 20'000;

/// What became of windows that were narrowed.
enum class device_outcome : std::uint8_t {
    refuted,   ///< no schedule is so short
    narrowed,  ///< no device has more to say
    cut_short, ///< a limit ended it; what was narrowed holds
};

/// Narrows heads and tails under a makespan by searches over the states of one device after the other.
///
/// A search of a device, the others relaxed (`problem_relaxer`), that knows how long every state takes at the least to
/// the end meets only states through which a short enough schedule of the device leads: the least start of a pass in
/// them is its head. The same turned round gives tails. Heads and tails go on along dependencies and memory links to
/// the other devices, whose searches are repeated when their windows have become narrower: constraint propagation with
/// one machine per constraint, where the usual edge finding is replaced by the exact answer.
class device_propagator {
public:
    /// Throws input_error for an ill-formed problem. `bound` is that of `bound_schedule(problem)`.
    device_propagator(const schedule_problem& problem, const schedule_bound& bound) :
        index_{index_problem(problem)}, m_{static_cast<std::size_t>(problem.microbatches)},
        before_(static_cast<std::size_t>(index_.ops())), after_(before_.size()) {
        const problem_relaxer relaxer{problem, bound};
        for (int d = 0; d != problem.devices; ++d) {
            forward_.push_back(relaxer.relax({d}, false));
            turned_.push_back(relaxer.relax({d}, true));
        }
        for (const auto& link : memory_links(problem, index_)) {
            before_[static_cast<std::size_t>(link.after)].push_back(link);
            after_[static_cast<std::size_t>(link.before)].push_back(link);
        }
    }

    /// Narrows `windows`, which hold for all schedules shorter than `below_us`, or are those of `bound_schedule` alone.
    /// No search has more than `limits.nodes` states; `limits.below_us` is the makespan that is asked about. `nodes`
    /// counts states.
    [[nodiscard]] device_outcome narrow(device_windows& windows, const state_limits& limits,
                                        std::int64_t& nodes) const {
        const std::size_t devices = forward_.size();
        windows.forward.resize(devices);
        windows.turned.resize(devices);
        if (windows.below_us != limits.below_us) { windows.room.clear(); }
        windows.below_us = limits.below_us;
        windows.room.resize(devices, std::numeric_limits<double>::infinity());
        if (!follow(windows.bound, limits.below_us)) { return device_outcome::refuted; }
        for (bool changed = true; changed;) {
            changed = false;
            for (std::size_t d = 0; d != devices; ++d) {
                if (room_of(windows.bound, d, limits.below_us) > most_room * windows.room[d]) { continue; }
                changed = true;
                for (const bool turned : {false, true}) {
                    const auto outcome = search(windows, d, turned, limits, nodes);
                    if (outcome != device_outcome::narrowed) { return outcome; }
                }
                if (!follow(windows.bound, limits.below_us)) { return device_outcome::refuted; }
                windows.room[d] = room_of(windows.bound, d, limits.below_us);
            }
        }
        return device_outcome::narrowed;
    }

private:
    /// Of the room that its passes had: with more, a device is not searched again.
    static constexpr double most_room = 0.97;

    [[nodiscard]] device_outcome search(device_windows& windows, std::size_t d, bool turned, const state_limits& limits,
                                        std::int64_t& nodes) const {
        relaxed_problem one = turned ? turned_[d] : forward_[d];
        auto& head = turned ? windows.bound.tail : windows.bound.head;
        const auto& tail = turned ? windows.bound.head : windows.bound.tail;
        const auto place = [&](std::size_t i, std::size_t k) {
            return static_cast<std::size_t>(one.ops[i].number) * m_ + (turned ? m_ - 1 - k : k);
        };
        for (std::size_t i = 0; i != one.ops.size(); ++i) {
            for (std::size_t k = 0; k != m_; ++k) {
                one.head[i * m_ + k] = head[place(i, k)];
                one.tail[i * m_ + k] = tail[place(i, k)];
            }
        }
        state_search states{one};
        const auto& known = turned ? windows.forward[d] : windows.turned[d];
        if (known != nullptr) { states.guide(0, *known); }
        auto times = std::make_shared<completion_times>();
        std::vector<double> earliest{};
        const auto found = states.run(limits, *times, earliest);
        nodes += found.nodes;
        if (!found.finished) { return device_outcome::cut_short; }
        if (found.order.empty()) { return device_outcome::refuted; }
        (turned ? windows.turned : windows.forward)[d] = std::move(times);
        // Sums of durations are rounded.
        const double rounding = 1e-11 * limits.below_us;
        for (std::size_t i = 0; i != one.ops.size(); ++i) {
            for (std::size_t k = 0; k != m_; ++k) {
                double& h = head[place(i, k)];
                h = std::max(h, earliest[i * m_ + k] - rounding);
            }
        }
        return device_outcome::narrowed;
    }

    /// Along dependencies and memory links; false when a pass does not fit between head and tail.
    [[nodiscard]] bool follow(schedule_bound& bound, double below_us) const {
        const auto duration = [&](int op) { return index_.duration[static_cast<std::size_t>(op)]; };
        const auto at = [&](int op, std::size_t k) { return static_cast<std::size_t>(op) * m_ + k; };
        for (std::size_t k = 0; k != m_; ++k) {
            for (const int op : index_.alone) {
                double& h = bound.head[at(op, k)];
                if (k != 0) { h = std::max(h, bound.head[at(op, k - 1)] + duration(op)); }
                for (const auto& link : index_.before[static_cast<std::size_t>(op)]) {
                    h = std::max(h, bound.head[at(link.op, k)] + duration(link.op) + link.lag_us);
                }
                for (const auto& link : before_[static_cast<std::size_t>(op)]) {
                    const auto c = static_cast<std::size_t>(link.distance);
                    if (k >= c) { h = std::max(h, bound.head[at(link.before, k - c)] + duration(link.before)); }
                }
            }
        }
        for (std::size_t k = m_; k-- != 0;) {
            for (auto it = index_.alone.rbegin(); it != index_.alone.rend(); ++it) {
                const int op = *it;
                double& t = bound.tail[at(op, k)];
                if (k + 1 != m_) { t = std::max(t, bound.tail[at(op, k + 1)] + duration(op)); }
                for (const auto& link : index_.after[static_cast<std::size_t>(op)]) {
                    t = std::max(t, bound.tail[at(link.op, k)] + duration(link.op) + link.lag_us);
                }
                for (const auto& link : after_[static_cast<std::size_t>(op)]) {
                    const auto c = static_cast<std::size_t>(link.distance);
                    if (k + c < m_) { t = std::max(t, bound.tail[at(link.after, k + c)] + duration(link.after)); }
                }
                if (bound.head[at(op, k)] + duration(op) + t >= below_us) { return false; }
            }
        }
        return true;
    }

    [[nodiscard]] double room_of(const schedule_bound& bound, std::size_t d, double below_us) const {
        double room = 0;
        for (const int o : index_.on_device[d]) {
            const auto op = static_cast<std::size_t>(o);
            for (std::size_t k = 0; k != m_; ++k) {
                room += below_us - bound.head[op * m_ + k] - index_.duration[op] - bound.tail[op * m_ + k];
            }
        }
        return room;
    }

    indexed_problem index_;
    std::size_t m_;
    std::vector<relaxed_problem> forward_{};
    std::vector<relaxed_problem> turned_{};
    /// Memory links by the operation at their end, and at their beginning.
    std::vector<std::vector<memory_link>> before_;
    std::vector<std::vector<memory_link>> after_;
};

} // namespace pulse::detail
