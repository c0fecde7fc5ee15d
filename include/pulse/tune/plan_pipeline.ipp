#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/validate.hpp>
#include <pulse/tune/plan_pipeline.hpp>

namespace pulse {

PULSE_CONSTEXPR std::vector<std::int64_t> peak_bytes(const plan& planned, const step_model& model,
                                                     const std::vector<program>& programs,
                                                     const parameter_memory& kept) {
    std::vector<std::int64_t> peaks{};
    const int last = planned.data_degree - 1; // its shares of sharded state are the largest
    for (const program& of_rank : programs) {
        peaks.push_back(lay_out(model, of_rank).total_bytes() +
                        kept_bytes_on(model, of_rank.device, planned.data_degree, last, kept));
    }
    return peaks;
}

PULSE_CONSTEXPR std::vector<std::int64_t> peak_bytes(const plan& planned, const cost_table& costs,
                                                     const parameter_memory& kept) {
    const step_model model{planned, costs};
    return peak_bytes(planned, model, lower(planned, model), kept);
}

namespace detail {

[[nodiscard]] constexpr skip_aware_options folded_cut_options(const pipeline_options& options) {
    skip_aware_options asked{};
    asked.slack = options.slack;
    asked.routing = options.routing;
    asked.memory.limit_bytes = options.memory_limit_bytes;
    asked.memory.state_factor = options.parameter_copies;
    // What is recomputed is not held between the passes.
    asked.memory.in_flight = options.recompute == recomputation::none ? 1 : 0;
    return asked;
}

[[nodiscard]] constexpr partition cut_for(const cost_table& costs, const pipeline_options& options) {
    switch (options.kind) {
    case placement::folded:
        return skip_aware_partition(costs, options.devices, options.waves, folded_cut_options(options));
    case placement::interleaved: return interleaved_partition(costs, options.devices, options.waves);
    case placement::sequential: break;
    }
    if (options.waves != 1) { throw input_error("waves: a sequential placement has one stage on each device"); }
    return sequential_partition(costs, options.devices, {.slack = options.slack, .routing = options.routing});
}

[[nodiscard]] constexpr schedule order_for(const schedule_problem& problem, schedule_method method) {
    if (method == schedule_method::list) { return list_schedule(problem); }
    return baseline_schedule(problem, method);
}

/// What a device holds for one microbatch alone by the holds of a problem, which count more than the buffers take: a
/// scheduler that is given less refuses.
[[nodiscard]] constexpr std::vector<std::int64_t> least_holds(const schedule_problem& problem) {
    std::vector<std::int64_t> least{};
    for (const auto& peaks : profile_memory(problem, index_problem(problem)).peak_from) {
        least.push_back(peaks.front());
    }
    return least;
}

/// Takes from `room` what the layout needs beyond the limit, but leaves what one microbatch holds. False when that
/// changes nothing: there is no tighter problem to ask.
constexpr bool tighten(std::vector<std::int64_t>& room, const std::vector<std::int64_t>& least,
                       const std::vector<std::int64_t>& peaks, std::int64_t limit) {
    bool changed = false;
    for (std::size_t d = 0; d != room.size(); ++d) {
        const std::int64_t excess = std::max<std::int64_t>(peaks[d] - limit, 0);
        const std::int64_t next = std::max(room[d] - excess, least[d]);
        changed = changed || next < room[d];
        room[d] = next;
    }
    return changed;
}

/// The step's bound from a problem without recomputation and memory limit: a recompute may run while its device would
/// wait for a gradient, so it counts as work of its device alone, and holds may count more than the buffers take.
[[nodiscard]] constexpr double known_bound_us(const schedule_problem& plain, const schedule_problem& problem) {
    std::vector<double> load(static_cast<std::size_t>(problem.devices), 0.0);
    for (const stage_timing& s : problem.stages) {
        load[static_cast<std::size_t>(s.device)] += s.forward_us + s.backward_input_us + s.backward_weight_us;
    }
    double bound = lower_bound_us(plain);
    for (const double once : load) { bound = std::max(bound, problem.microbatches * once); }
    return bound;
}

/// What the scheduler may let every device hold, from what the device has; throws when parameters alone do not fit.
[[nodiscard]] constexpr std::vector<std::int64_t> room_for_steps(const partition& cut, const cost_table& costs,
                                                                 const pipeline_options& options) {
    std::vector<std::int64_t> room{};
    for (int d = 0; d != options.devices && options.memory_limit_bytes > 0; ++d) {
        const std::int64_t fixed = parameter_bytes_on(cut, costs, d, options.parameter_copies);
        if (fixed >= options.memory_limit_bytes) {
            throw infeasible_error("memory limit: the parameters of device " + std::to_string(d) + " alone take " +
                                   std::to_string(fixed) + " bytes of " + std::to_string(options.memory_limit_bytes));
        }
        room.push_back(options.memory_limit_bytes - fixed);
    }
    return room;
}

/// The device that exceeds the limit most, or -1; 0 is unlimited.
[[nodiscard]] constexpr int worst_over(const std::vector<std::int64_t>& peaks, std::int64_t limit) {
    int worst = -1;
    for (std::size_t d = 0; d != peaks.size() && limit > 0; ++d) {
        if (peaks[d] > limit && (worst < 0 || peaks[d] > peaks[static_cast<std::size_t>(worst)])) {
            worst = static_cast<int>(d);
        }
    }
    return worst;
}

/// A plan's programs and what each device takes for them (peak_bytes).
struct lowered_plan {
    std::vector<program> programs{};
    std::vector<std::int64_t> peak_bytes{};
};

/// Lowers the plan with as many spare sends, up to those of a new plan, as the limit leaves room for; with none where
/// it is exceeded without them. `tight` says that it probably is: then few are tried first.
[[nodiscard]] constexpr lowered_plan lower_within(plan& made, const step_model& model, const parameter_memory& kept,
                                                  std::int64_t limit, bool tight) {
    const int wanted = plan{}.spare_sends;
    const auto lower_with = [&](int spare_sends) {
        lowered_plan lowered{};
        made.spare_sends = spare_sends;
        lowered.programs = lower(made, model);
        lowered.peak_bytes = peak_bytes(made, model, lowered.programs, kept);
        return lowered;
    };
    lowered_plan best = lower_with(tight ? 0 : wanted);
    if (!tight && worst_over(best.peak_bytes, limit) >= 0) { best = lower_with(0); }
    while (made.spare_sends != wanted && worst_over(best.peak_bytes, limit) < 0) {
        lowered_plan more = lower_with(made.spare_sends + 1);
        if (worst_over(more.peak_bytes, limit) >= 0) {
            --made.spare_sends;
            break;
        }
        best = std::move(more);
    }
    return best;
}

} // namespace detail

PULSE_CONSTEXPR plan plan_pipeline(const cost_table& costs, const pipeline_options& options) {
    if (options.microbatches < 1) { throw input_error("microbatches: there must be at least one"); }
    if (options.parameter_copies < 0) { throw input_error("parameter_copies: it must not be negative"); }
    if (options.memory_limit_bytes < 0) { throw input_error("memory_limit_bytes: it must not be negative"); }
    if (const auto need = unmet_need(options.method, options.kind, options.waves, options.split_backward);
        !need.empty()) {
        throw input_error("schedule method " + std::string{name_of(options.method)} + ": " + std::string{need});
    }
    plan made = detail::unordered_plan(costs, detail::cut_for(costs, options), options);

    problem_options ask{};
    ask.microbatches = options.microbatches;
    ask.split_backward = options.split_backward;
    ask.routing = options.routing;
    ask.recompute = options.recompute;
    ask.link = options.link;
    const std::vector<std::int64_t> room = detail::room_for_steps(made.cut, costs, options);
    prediction& expected = made.predicted;
    const schedule_problem free = make_problem(costs, made.cut, ask);
    {
        problem_options once = ask;
        once.recompute = recomputation::none;
        expected.lower_bound_us = detail::known_bound_us(make_problem(costs, made.cut, once), free);
    }
    const step_model model{made, costs};
    schedule_problem problem = free;
    std::vector<std::int64_t> least{};
    int over = -1;
    const auto refuse = [&] {
        const std::int64_t needed = expected.peak_memory_bytes[static_cast<std::size_t>(over)];
        throw infeasible_error("memory limit: device " + std::to_string(over) + " needs " + std::to_string(needed) +
                               " bytes of " + std::to_string(options.memory_limit_bytes));
    };
    for (int attempt = 0;; ++attempt) {
        try {
            made.order = detail::order_for(problem, options.method);
        } catch (const infeasible_error&) { // by its holds, which the layout does not know
            if (over < 0) { throw; }
            refuse();
        }
        expected.peak_memory_bytes =
            detail::lower_within(made, model, {options.parameter_copies}, options.memory_limit_bytes, attempt > 0)
                .peak_bytes;
        over = detail::worst_over(expected.peak_memory_bytes, options.memory_limit_bytes);
        if (over < 0) { break; }
        constexpr int attempts = 8;
        bool again = attempt != attempts && adapts_to_memory(options.method);
        if (again && attempt == 0) {
            least = detail::least_holds(free);
            problem.memory_limit_bytes = room;
            for (std::size_t d = 0; d != room.size(); ++d) {
                problem.memory_limit_bytes[d] = std::max(room[d], least[d]);
            }
        } else if (again) {
            again = detail::tighten(problem.memory_limit_bytes, least, expected.peak_memory_bytes,
                                    options.memory_limit_bytes);
        }
        if (!again) { refuse(); }
    }
    detail::predict_step(made, made.order.makespan_us(), bubble_ratio(problem, made.order));
    return made;
}

} // namespace pulse
