#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/timed_orders.hpp>
#include <pulse/schedule/validate.hpp>

namespace pulse::detail {

/// The passes of a schedule, in order, as seen by the tasks between them; an instance is op * microbatches +
/// microbatch.
struct fill_problem {
    indexed_problem index{};
    std::vector<std::vector<int>> sequence{}; ///< [device]
    std::vector<double> earliest_us{};        ///< [instance] start when there are no tasks
    std::vector<double> tail_us{};            ///< [instance] least time from its start to the end of everything
    double end_us{};                          ///< end of everything, after_us included, with these starts
    /// Bytes held right before the i-th pass of a device, and the most during it and all later passes; empty where
    /// memory is unlimited.
    std::vector<std::vector<std::int64_t>> held_before{};
    std::vector<std::vector<std::int64_t>> held_from{};
    std::vector<std::int64_t> takes{};     ///< [op] bytes of the holds that it begins; empty where memory is unlimited
    std::vector<std::int64_t> held_most{}; ///< [device] bytes of all its holds together; likewise

    [[nodiscard]] constexpr int instances() const noexcept { return index.ops() * index.microbatches; }
    [[nodiscard]] constexpr std::size_t op_of(int x) const noexcept {
        return static_cast<std::size_t>(x / index.microbatches);
    }
    [[nodiscard]] constexpr std::size_t device_of(int x) const {
        return static_cast<std::size_t>(index.device[op_of(x)]);
    }
    [[nodiscard]] constexpr double duration_us(int x) const { return index.duration[op_of(x)]; }
    [[nodiscard]] constexpr int instance_of(std::size_t op, int like) const noexcept {
        return static_cast<int>(op) * index.microbatches + like % index.microbatches;
    }
};

/// Adds the levels of each device's holds along its sequence; `passes` is the schedule of the sequences.
constexpr void take_levels(fill_problem& frame, const schedule_problem& problem, const schedule& passes) {
    frame.takes.resize(static_cast<std::size_t>(frame.index.ops()), 0);
    for (const memory_hold& h : problem.holds) {
        frame.takes[static_cast<std::size_t>(frame.index.op_of(h.begin))] += h.bytes;
    }
    for (std::size_t d = 0; d != frame.sequence.size(); ++d) {
        auto from = hold_levels(problem, passes.devices[d], static_cast<int>(d));
        from.push_back(0);
        auto before = from;
        std::int64_t most = 0;
        for (std::size_t i = 0; i != frame.sequence[d].size(); ++i) {
            const std::int64_t taken = frame.takes[frame.op_of(frame.sequence[d][i])];
            before[i] -= taken;
            most += taken;
        }
        for (std::size_t i = from.size() - 1; i-- > 0;) { from[i] = std::max(from[i], from[i + 1]); }
        frame.held_before.push_back(std::move(before));
        frame.held_from.push_back(std::move(from));
        frame.held_most.push_back(most);
    }
}

/// Builds the frame of `passes`. `after_us`: work of each device after its last pass. Throws input_error when `problem`
/// cannot run the orders of `passes`.
[[nodiscard]] constexpr fill_problem frame_of(const schedule_problem& problem, const schedule& passes,
                                              const std::vector<double>& after_us) {
    const schedule early = retimed(problem, passes);
    fill_problem out{};
    out.index = index_problem(problem, problem.further_chains.empty() ? taken_chains::several : taken_chains::one);
    out.earliest_us.resize(static_cast<std::size_t>(out.instances()), 0.0);
    std::vector<std::vector<int>> from_end{};
    for (const auto& list : early.devices) {
        if (!list.empty()) { out.end_us = std::max(out.end_us, list.back().end_us + after_us[out.sequence.size()]); }
        auto& sequence = out.sequence.emplace_back();
        for (const timed_pass& p : list) {
            sequence.push_back(out.index.instance_of(p));
            out.earliest_us[static_cast<std::size_t>(sequence.back())] = p.start_us;
        }
        from_end.emplace_back();
        for (std::size_t i = sequence.size(); i-- > 0;) { from_end.back().push_back(out.index.flipped(sequence[i])); }
    }
    // Seen from the end, an instance ends at its tail.
    out.tail_us = out.index.mirrored(earliest_starts(mirrored(out.index), from_end, after_us));
    for (int x = 0; x != out.instances(); ++x) { out.tail_us[static_cast<std::size_t>(x)] += out.duration_us(x); }
    if (!problem.memory_limit_bytes.empty()) { take_levels(out, problem, early); }
    return out;
}

} // namespace pulse::detail
