#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/validate.hpp>

#include "schedule_grid.hpp"

namespace pulse_bench {

/// A published order that is compared with the best schedule found, on the loads of a grid instance.
struct grid_baseline {
    std::string_view name{};
    /// A name for the JSON.
    std::string_view key{};
    pulse::schedule_method method{};
    pulse::placement kind{};
    /// Whether skips are relayed between devices or cost nothing; a folded placement keeps them on their devices.
    bool relays_skips{};
};

inline constexpr std::array grid_baselines{
    grid_baseline{"1F1B", "1f1b", pulse::schedule_method::one_f_one_b, pulse::placement::sequential, true},
    grid_baseline{"1F1B no skips", "1f1b_no_skips", pulse::schedule_method::one_f_one_b, pulse::placement::sequential,
                  false},
    grid_baseline{"interleaved", "interleaved", pulse::schedule_method::interleaved, pulse::placement::interleaved,
                  true},
    grid_baseline{"interleaved no skips", "interleaved_no_skips", pulse::schedule_method::interleaved,
                  pulse::placement::interleaved, false},
    grid_baseline{"ZB-H1", "zb_h1", pulse::schedule_method::zb_h1, pulse::placement::sequential, true},
    grid_baseline{"ZB-V", "zb_v", pulse::schedule_method::zb_v, pulse::placement::folded, false},
    grid_baseline{"wave, greedy", "wave_greedy", pulse::schedule_method::hanayo, pulse::placement::folded, false}};

/// The problem of `instance` on another placement, with the same load and the same bytes on every device.
///
/// Sequential: stage d merges all stages of device d in the fold. Interleaved: 2W chunks; chunk c of device d is its
/// c-th stage in the fold. The skips are those of a chain of 2PW stages in which stage s feeds stage 2PW-1-s: a
/// boundary that relays n of them takes n + 1 latencies, n being its distance from the nearer end of the chain.
[[nodiscard]] inline pulse::schedule_problem baseline_problem(const grid_instance& instance, pulse::placement kind,
                                                              bool relays_skips) {
    if (kind == pulse::placement::folded) { return instance.problem; }
    const auto folded = grid_stages(instance.costs, instance.devices, instance.waves);
    const double latency = grid_latency_us(instance, folded);
    const int all = static_cast<int>(folded.size());
    const int chunks = all / instance.devices;
    const int merged = kind == pulse::placement::sequential ? chunks : 1;
    std::vector<grid_stage> stages(folded.size() / static_cast<std::size_t>(merged));
    std::vector<int> home{};
    std::vector<double> lag{};
    for (int s = 0; s != static_cast<int>(stages.size()); ++s) {
        home.push_back(s % instance.devices);
        const int before = merged * (s + 1);
        lag.push_back(latency * (1 + (relays_skips ? std::min(before, all - before) : 0)));
    }
    for (int s = 0; s != all; ++s) {
        const int d = pulse::device_of(pulse::placement::folded, s, instance.devices);
        const int chunk = s / instance.devices;
        const int to = merged == 1 ? chunk * instance.devices + d : d;
        const auto& from = folded[static_cast<std::size_t>(s)];
        auto& sum = stages[static_cast<std::size_t>(to)];
        sum.forward += from.forward;
        sum.backward_input += from.backward_input;
        sum.backward_weight += from.backward_weight;
        sum.bytes += from.bytes;
    }
    return chain_problem(instance, stages, home, lag);
}

/// A baseline's result on an instance.
struct baseline_run {
    double makespan_us{};
    /// Bytes held over bytes allowed on the device that exceeds its limit most; 1 where all fit or memory is free.
    double over_limit{1};
};

/// Microseconds that the stages of every device take for one microbatch.
[[nodiscard]] inline std::vector<double> device_loads_us(const pulse::schedule_problem& problem) {
    std::vector<double> loads(static_cast<std::size_t>(problem.devices), 0.0);
    for (const auto& s : problem.stages) {
        loads[static_cast<std::size_t>(s.device)] += s.forward_us + s.backward_input_us + s.backward_weight_us;
    }
    return loads;
}

/// Runs a baseline within the instance's memory or, if no order of it fits, without the limit; none where the method is
/// not defined for the instance. Throws runtime_error, naming both, for an invalid schedule, and for loads or memory
/// that differ from the instance's.
[[nodiscard]] inline std::optional<baseline_run> run_baseline(const grid_instance& instance,
                                                              const grid_baseline& baseline) {
    const int chunks = baseline.kind == pulse::placement::folded        ? instance.waves
                       : baseline.kind == pulse::placement::interleaved ? 2 * instance.waves
                                                                        : 1;
    if (!pulse::unmet_need(baseline.method, baseline.kind, chunks, instance.split).empty()) { return std::nullopt; }
    auto problem = baseline_problem(instance, baseline.kind, baseline.relays_skips);
    const auto limit = problem.memory_limit_bytes;
    // Whole microseconds: their sums are exact in any order.
    if (device_loads_us(problem) != device_loads_us(instance.problem) || limit != instance.problem.memory_limit_bytes) {
        throw std::runtime_error(instance.name() + ", " + std::string{baseline.name} + ": loads or memory differ");
    }
    pulse::schedule timed{};
    try {
        timed = pulse::baseline_schedule(problem, baseline.method);
    } catch (const pulse::infeasible_error&) {
        problem.memory_limit_bytes.clear();
        timed = pulse::baseline_schedule(problem, baseline.method);
    }
    if (const auto violation = pulse::find_violation(problem, timed); violation.broken()) {
        throw std::runtime_error(instance.name() + ", " + std::string{baseline.name} + ": " +
                                 pulse::describe(violation));
    }
    baseline_run out{timed.makespan_us(), 1};
    if (!limit.empty()) {
        const auto peaks = pulse::peak_holds(problem, timed);
        for (std::size_t d = 0; d != limit.size(); ++d) {
            out.over_limit = std::max(out.over_limit, static_cast<double>(peaks[d]) / static_cast<double>(limit[d]));
        }
    }
    return out;
}

} // namespace pulse_bench
