#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/schedule/bound/best_first_bound.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/bound/relaxed_problem.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// Lower bounds of a problem from its single devices, with the others relaxed, each seen from the beginning and from
/// the end. Of their searches (`best_first_bound`), the one that has proved most continues. A search is given up when
/// it has looked at many states since its last gain. Devices with much less work than the busiest one are left out,
/// since they would have to idle for a multiple of its idle time.
class device_bounds {
public:
    /// `bound` comes from `bound_schedule(problem)`. At most 65,535 microbatches. Throws input_error for an ill-formed
    /// problem.
    device_bounds(const schedule_problem& problem, const schedule_bound& bound) {
        const problem_relaxer relaxer{problem, bound};
        const auto load_us = [&](int d) { return relaxer.index().load_us(d) * problem.microbatches; };
        double most = 0;
        for (int d = 0; d != problem.devices; ++d) { most = std::max(most, load_us(d)); }
        // Sums are rounded: always include the busiest device.
        const double least = std::min(most, bound.makespan_us - most_idle * (bound.makespan_us - most)) * (1 - 1e-9);
        for (int d = 0; d != problem.devices; ++d) {
            if (load_us(d) < least) { continue; }
            for (const bool turned : {false, true}) { searches_.emplace_back(relaxer.relax({d}, turned)); }
        }
        const auto count = static_cast<std::int64_t>(searches_.size());
        if (problem.memory_limit_bytes.empty() || count == 0) { return; }
        most_in_vain_ = std::max<std::int64_t>(4000, 50'000 / count);
    }

    /// Whether there is nothing left to try.
    [[nodiscard]] bool finished() const noexcept { return searches_.empty(); }

    /// Raises the bound until `spend()`, called before every state, returns false. The result is at least `lower_us`,
    /// the bound known before, and at most `upper_us`, the makespan of the best schedule known, which must not grow
    /// from call to call.
    template <class Spend>
    [[nodiscard]] double raise(double lower_us, double upper_us, const Spend& spend) {
        bool goes_on = true;
        const auto counted = [&] { return goes_on = spend(); };
        // Sums in another order must not make an equal makespan look longer.
        const double below_us = upper_us * (1 - 4e-10);
        while (goes_on && lower_us < below_us && !searches_.empty()) {
            const auto next = std::max_element(searches_.begin(), searches_.end(), [](const auto& a, const auto& b) {
                const bool begun = a.looked() != 0; // those not begun come first
                return begun != (b.looked() != 0) ? begun : a.proved_us() < b.proved_us();
            });
            next->run(below_us, states_at_once, counted);
            lower_us = std::max(lower_us, next->proved_us());
            const bool in_vain = next->looked() > most_in_vain_ + 3 * next->gained();
            if (next->finished() || in_vain || next->stored() > most_stored) { searches_.erase(next); }
        }
        return lower_us < below_us ? lower_us : upper_us;
    }

private:
    /// Most idle time that a device may need to end at the bound, as a multiple of the busiest one's.
    static constexpr double most_idle = 3;
    static constexpr std::int64_t states_at_once = 200;
    /// Partial schedules that a search stores: half a kilobyte each, more with many microbatches in flight.
    static constexpr std::int64_t most_stored = 300'000;

    std::vector<best_first_bound> searches_{};
    /// States of a search without a gain. With unlimited memory, the idle time that a device needs is proved soon or
    /// never; else the fewer devices have much work, the longer each is worth searching.
    std::int64_t most_in_vain_{300};
};

} // namespace pulse::detail
