#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/timed_orders.hpp>
#include <pulse/schedule/validate.hpp>
#include <pulse/simulate/grid_links.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/candidate_bound.hpp>
#include <pulse/tune/candidate_cut.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/prepared_candidate.hpp>
#include <pulse/tune/recomputed_stages.hpp>
#include <pulse/tune/step_end.hpp>

namespace pulse {

namespace detail {

[[nodiscard]] constexpr schedule order_candidate(const schedule_problem& problem, const tune_candidate& c,
                                                 const list_options& list) {
    if (c.method == schedule_method::list) { return list_schedule(problem, list); }
    return baseline_schedule(problem, c.method);
}

/// Bytes that one microbatch alone holds on each device, by the holds of a problem, which count more than the buffers
/// take: a scheduler that is given less refuses.
[[nodiscard]] constexpr std::vector<std::int64_t> least_holds(const schedule_problem& problem) {
    std::vector<std::int64_t> least{};
    for (const auto& peaks : profile_memory(problem, index_problem(problem, taken_chains::several)).peak_from) {
        least.push_back(peaks.front());
    }
    return least;
}

/// Subtracts from `room` what the layout needs beyond the limits, but leaves what one microbatch holds. Returns false
/// if nothing changes: then there is no tighter problem to try.
constexpr bool tighten(std::vector<std::int64_t>& room, const std::vector<std::int64_t>& least,
                       const std::vector<std::int64_t>& peaks, const memory_limits& limits) {
    bool changed = false;
    for (std::size_t d = 0; d != room.size(); ++d) {
        const std::int64_t excess = std::max<std::int64_t>(peaks[d] - limits.of(d), 0);
        const std::int64_t next = std::max(room[d] - excess, least[d]);
        changed = changed || next < room[d];
        room[d] = next;
    }
    return changed;
}

/// Predicts the step time of an ordered plan, and the samples per second of all its replicas.
constexpr void predict_step(plan& made, double step_us, double bubble_ratio) {
    const double samples = 1.0 * made.microbatches * made.microbatch_size * made.data_degree;
    made.predicted.step_us = step_us;
    made.predicted.bubble_ratio = bubble_ratio;
    made.predicted.samples_per_s = step_us > 0 ? 1e6 * samples / step_us : 0.0;
}

/// End of the last pass of every stage, from the instructions that ran.
[[nodiscard]] constexpr std::vector<double> stage_ends(const partition& cut, const std::vector<program>& programs,
                                                       const simulation& ran) {
    std::vector<double> ends(cut.stages.size(), 0.0);
    for (std::size_t r = 0; r != programs.size(); ++r) {
        for (const simulated_pass& p : ran.ranks[r]) {
            const instruction& what = programs[r].instructions[static_cast<std::size_t>(p.instruction)];
            int stage = -1;
            if (const auto* w = std::get_if<op::backward_weight>(&what)) { stage = index_of(w->stage); }
            if (const auto* b = std::get_if<op::backward_input>(&what)) { stage = index_of(b->stage); }
            if (stage >= 0) {
                double& end = ends[static_cast<std::size_t>(stage)];
                end = std::max(end, p.end_us);
            }
        }
    }
    return ends;
}

PULSE_CONSTEXPR void predict_plan(plan& planned, const cost_table& costs, const prepared_candidate& prepared,
                                  const memory_limits& limits, bool tight) {
    const step_model model{planned, costs};
    const candidate_step& step = prepared.step;
    lowered_plan lowered = lower_within(planned, model, step.world.kept, limits, tight);
    planned.predicted.peak_memory_bytes = std::move(lowered.peak_bytes);
    const std::vector<program>& programs = lowered.programs;
    if (planned.pipeline_degree > 1 || planned.data_degree == 1) {
        const simulation ran = simulate(planned, model, programs, step.world);
        predict_step(planned, ran.step_us, std::max(0.0, ran.bubble_ratio));
        return;
    }
    plan alone = planned;
    alone.data_degree = 1;
    const simulation ran = simulate(alone, model, programs, {.device_speed = step.world.device_speed});
    const double step_us = end_step_us(step.buckets, step.replicas, step.world, stage_ends(prepared.cut, programs, ran),
                                       ran.step_us, step.parameter_bytes[0]);
    const double busy_us = (1.0 - ran.bubble_ratio) * ran.step_us + step.world.optimizer_us_of(0);
    predict_step(planned, step_us, step_us > 0 ? std::max(0.0, 1.0 - busy_us / step_us) : 0.0);
}

PULSE_CONSTEXPR evaluated_candidate simulate_candidate(const cost_table& costs, const tune_candidate& c,
                                                       const prepared_candidate& prepared, schedule order, bool tight) {
    evaluated_candidate made{unordered_plan(costs, prepared.cut, c, prepared.step), {}, {}};
    made.planned.order = std::move(order);
    predict_plan(made.planned, costs, prepared, prepared.limits.less(prepared.frozen_bytes), tight);
    for (std::size_t d = 0; d != prepared.frozen_bytes.size(); ++d) {
        made.planned.predicted.peak_memory_bytes[d] += prepared.frozen_bytes[d];
    }
    return made;
}

/// Asks `order_of` for orders of a candidate's problem until one fits by the exact layout: first with `room`, or
/// without a limit if that is empty; then with what the limit leaves; then with the excess subtracted; at most
/// `attempts` more times. Throws memory_error if none fits.
template <class OrderOf>
[[nodiscard]] constexpr evaluated_candidate fit_candidate(const cost_table& costs, const tune_candidate& c,
                                                          const prepared_candidate& prepared,
                                                          std::vector<std::int64_t> room, int attempts,
                                                          const OrderOf& order_of) {
    const memory_limits& limits = prepared.limits;
    schedule_problem problem = prepared.step.problem;
    std::vector<std::int64_t> least{};
    int device = -1;
    std::int64_t needed = 0;
    for (int attempt = 0;; ++attempt) {
        problem.memory_limit_bytes = room;
        schedule order{};
        try {
            order = order_of(problem);
        } catch (const infeasible_error&) { // by its holds
            if (device < 0) { throw; }
            throw memory_error(device, needed, limits.of(device),
                               prepared.fixed_bytes[static_cast<std::size_t>(device)]);
        }
        evaluated_candidate made = simulate_candidate(costs, c, prepared, std::move(order), attempt > 0);
        made.room_bytes = room;
        const auto& peaks = made.planned.predicted.peak_memory_bytes;
        const int over = limits.worst_over(peaks);
        if (over < 0) { return made; }
        if (device < 0 || peaks[static_cast<std::size_t>(over)] < needed) {
            device = over;
            needed = peaks[static_cast<std::size_t>(over)];
        }
        bool again = attempt < attempts;
        if (again && least.empty()) { least = least_holds(prepared.step.problem); }
        if (again && room.empty()) {
            for (std::size_t d = 0; d != peaks.size(); ++d) {
                room.push_back(std::max(limits.of(d) - prepared.fixed_bytes[d], least[d]));
            }
        } else if (again) {
            again = tighten(room, least, peaks, limits);
        }
        if (!again) {
            throw memory_error(device, needed, limits.of(device),
                               prepared.fixed_bytes[static_cast<std::size_t>(device)]);
        }
    }
}

/// evaluate_candidate for a candidate whose stages to recompute are chosen.
[[nodiscard]] constexpr evaluated_candidate evaluate_chosen(const cost_table& costs, const tune_candidate& c,
                                                            const prepared_candidate& prepared,
                                                            const list_options& list, int attempts = 9) {
    return fit_candidate(costs, c, prepared, {}, rule_of(c.method).adapts_to_memory ? attempts : 0,
                         [&](const schedule_problem& problem) { return order_candidate(problem, c, list); });
}

/// evaluate_candidate for a candidate whose stages to recompute are still to be chosen.
[[nodiscard]] constexpr evaluated_candidate evaluate_selective(const cost_table& costs, tune_candidate c,
                                                               const prepared_candidate& prepared,
                                                               const list_options& list) {
    const std::size_t stages = prepared.cut.stages.size();
    const auto evaluate = [&](const std::vector<char>& flags, int attempts = 9) {
        c.recompute = stage_recomputation{flags};
        return evaluate_chosen(costs, c, recomputing(costs, c, prepared), list, attempts);
    };
    evaluated_candidate none{};
    bool none_fits = false;
    try {
        none = evaluate(std::vector<char>(stages, 0));
        none_fits = true;
        if (none.room_bytes.empty()) { return none; } // its order has all the room that it wants
    } catch (const memory_error&) {}
    evaluated_candidate best{};
    try {
        best = evaluate(std::vector<char>(stages, 1));
    } catch (const memory_error&) {
        if (!none_fits) { throw; }
        return none;
    }
    const schedule many_in_flight = best.planned.order;
    const auto keep_faster = [&](evaluated_candidate other) {
        if (prepared.limits.worst_over(other.planned.predicted.peak_memory_bytes) >= 0) { return; }
        if (other.planned.predicted.step_us < best.planned.predicted.step_us) { best = std::move(other); }
    };
    std::vector<std::vector<char>> tried{};
    // Tries an order with the stages that it makes necessary (it fits, unless the changed times break that), and then
    // the order that the scheduler finds for these stages.
    const auto keep_if_faster_in = [&](const schedule& order) {
        plan ordered = unordered_plan(costs, prepared.cut, c, prepared.step);
        ordered.order = order;
        const std::vector<char> flags = choose_recomputed_stages(std::move(ordered), costs, prepared.step.world.kept,
                                                                 prepared.limits.less(prepared.frozen_bytes));
        if (flags.empty()) { return; }
        c.recompute = stage_recomputation{flags};
        const prepared_candidate ready = recomputing(costs, c, prepared);
        evaluated_candidate as_ordered = simulate_candidate(costs, c, ready, retimed(ready.step.problem, order), true);
        as_ordered.room_bytes = peak_holds(ready.step.problem, as_ordered.planned.order);
        keep_faster(std::move(as_ordered));
        if (std::find(tried.begin(), tried.end(), flags) != tried.end()) { return; }
        tried.push_back(flags);
        try {
            keep_faster(evaluate(flags, 2));
        } catch (const memory_error&) { return; }
    };
    if (none_fits) { keep_faster(std::move(none)); }
    keep_if_faster_in(many_in_flight);
    if (!rule_of(c.method).adapts_to_memory) { return best; }
    schedule_problem fewer = prepared.step.problem;
    const std::vector<std::int64_t> least = least_holds(fewer);
    const std::vector<std::int64_t> most = peak_holds(fewer, many_in_flight);
    for (const int quarters : {0, 2, 3}) {
        fewer.memory_limit_bytes = least;
        for (std::size_t d = 0; d != least.size(); ++d) {
            fewer.memory_limit_bytes[d] += std::max<std::int64_t>(0, most[d] - least[d]) / 4 * quarters;
        }
        try {
            keep_if_faster_in(order_candidate(fewer, c, list));
        } catch (const infeasible_error&) { continue; } // methods of a fixed pattern need more than the least
    }
    return best;
}

} // namespace detail

PULSE_CONSTEXPR evaluated_candidate evaluate_candidate(const cost_table& costs, const tune_candidate& c,
                                                       const prepared_candidate& prepared, const list_options& list) {
    // Selective without flags.
    if (c.recompute == recomputation::selective) { return detail::evaluate_selective(costs, c, prepared, list); }
    return detail::evaluate_chosen(costs, c, prepared, list);
}

/// Searches longer for an order of a candidate than evaluate_candidate, with `search(problem)`, which returns a
/// synthesis; if the order needs too much memory, it searches again, at most twice. `proof_us` is raised to a bound
/// that the search proved, if that holds for every order: without recomputation, which may hide behind transfers, and
/// without a limit, whose holds count more than the layout. Throws memory_error if no order fits.
template <class Search>
[[nodiscard]] evaluated_candidate refine_candidate(const cost_table& costs, const tune_candidate& c,
                                                   const prepared_candidate& prepared, const Search& search,
                                                   const std::vector<std::int64_t>& room, double& proof_us) {
    return detail::fit_candidate(costs, c, prepared, room, 2, [&](const schedule_problem& problem) {
        auto found = search(problem);
        if (problem.memory_limit_bytes.empty() && c.recompute == recomputation::none) {
            proof_us = std::max(proof_us, found.lower_bound_us);
        }
        return std::move(found.best);
    });
}

PULSE_CONSTEXPR planned plan_candidate(const cost_table& costs, tune_candidate c, const cluster& machine,
                                       const candidate_options& options) {
    check_parameter_memory(options.kept);
    check_moments(options.kept.form, costs);
    if (c.microbatches < 1) { throw input_error("microbatches: it must be at least 1"); }
    if (options.memory_limit_bytes < 0) { throw input_error("memory_limit_bytes: it must not be negative"); }
    if (c.kind == placement::sequential && c.waves != 1) {
        throw input_error("waves: must be 1, as a sequential placement has one stage on each device");
    }
    if (const auto need = unmet_need(c.method, c.kind, c.waves, c.split_backward); !need.empty()) {
        throw input_error("schedule method " + std::string{name_of(c.method)} + ": " + std::string{need});
    }
    if (options.self_conditioning && !unmet_by_previews(c).empty()) {
        throw input_error(std::string{unmet_by_previews(c)});
    }
    c.microbatch_size = costs.microbatch_size;
    const std::vector<double> speeds = pipeline_speeds(machine, {c.layout, c.pipeline_degree, c.data_degree});
    const memory_limits limits = memory_limits_of(machine, c, options);
    const parameter_memory kept = parameter_memory_of(options, c);
    partition cut = cut_candidate(costs_to_cut(costs, c, machine, options), c, kept, limits, speeds);
    const prepared_candidate ready = prepare_candidate(costs, machine, std::move(cut), c, options, limits);
    plan made = evaluate_candidate(costs, c, ready, options.list).planned;
    c.recompute = made.recompute;
    made.predicted.lower_bound_us =
        step_bound_us(detail::recomputing(costs, c, ready).step, lower_bound_us(ready.step.plain));
    return {std::move(made), costs, kept, c.layout};
}

PULSE_CONSTEXPR planned plan_candidate(const cost_table& costs, const tune_candidate& c, const link& line,
                                       const candidate_options& options) {
    return plan_candidate(costs, c, one_node(c.pipeline_degree * c.data_degree, line), options);
}

} // namespace pulse
