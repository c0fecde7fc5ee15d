#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/partition/find_skip_aware.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/tune/candidate_bound.hpp>
#include <pulse/tune/plan_pipeline.hpp>
#include <pulse/tune/search_space.hpp>

namespace pulse {

/// Where a candidate cuts the model; throws infeasible_error, naming the skip or the layers, when it cannot.
///
/// Folded: the skip-aware cut, of those that leave room for one microbatch where there is one, unless `fold` asks for the
/// cut by load; sequential and interleaved: the cut by load. All take fewer bytes within the slack where their partitioner offers it.
[[nodiscard]] inline partition cut_candidate(const cost_table& costs, const tune_candidate& c, int parameter_copies,
                                             std::int64_t limit_bytes) {
    switch (c.kind) {
    case placement::folded: {
        if (c.fold == fold_cut::balanced) {
            // As many stages in a chain as the fold has, laid on the fold.
            partition chain = interleaved_partition(costs, c.pipeline_degree, 2 * c.waves);
            chain.kind = placement::folded;
            chain.waves = c.waves;
            for (stage& s : chain.stages) { s.device = device_of(placement::folded, s.index, c.pipeline_degree); }
            return chain;
        }
        skip_aware_options asked{};
        asked.slack = c.slack;
        asked.routing = c.routing;
        asked.memory.limit_bytes = limit_bytes;
        asked.memory.state_factor = parameter_copies;
        asked.memory.in_flight = c.recompute == recomputation::none ? 1 : 0;
        maybe_partition found = find_skip_aware_partition(costs, c.pipeline_degree, c.waves, asked);
        if (found) { return *std::move(found); }
        asked.memory = {};
        return skip_aware_partition(costs, c.pipeline_degree, c.waves, asked);
    }
    case placement::interleaved: return interleaved_partition(costs, c.pipeline_degree, c.waves);
    case placement::sequential: break;
    }
    return sequential_partition(costs, c.pipeline_degree, {.slack = c.slack, .routing = c.routing});
}

/// Bytes that a device needs whatever the order of passes, by what they are for.
struct least_memory {
    int device{};
    std::int64_t parameter_bytes{}; ///< all copies
    std::int64_t workspace_bytes{};
    std::int64_t microbatch_bytes{}; ///< one microbatch alone: activations, skips and gradients at their peak

    [[nodiscard]] constexpr std::int64_t total_bytes() const noexcept {
        return parameter_bytes + workspace_bytes + microbatch_bytes;
    }
};

/// A candidate with everything that precedes its order of passes.
struct prepared_candidate {
    partition cut{};
    candidate_step step{};
    /// Of the device that needs most.
    least_memory least{};
    /// Limits of the whole devices; step.problem has what the holds may take.
    std::int64_t limit_bytes{};
    std::int64_t gradient_bytes{}; ///< that one replica sends for the reduction
};

namespace detail {

[[nodiscard]] constexpr std::int64_t workspace_on(const cost_table& costs, const partition& cut, int device) {
    std::int64_t most = 0;
    for (const stage& s : cut.stages) {
        for (int l = s.first_layer; l <= s.last_layer && s.device == device; ++l) {
            most = std::max(most, costs.layers[static_cast<std::size_t>(l)].workspace_bytes);
        }
    }
    return most;
}

} // namespace detail

/// Cuts the model as the candidate says and describes its step.
[[nodiscard]] inline prepared_candidate prepare_candidate(const cost_table& costs, const cluster& machine,
                                                          partition cut, const tune_candidate& c,
                                                          const tune_options& options, std::int64_t limit_bytes) {
    prepared_candidate made{};
    made.cut = std::move(cut);
    made.limit_bytes = limit_bytes;
    const rank_grid grid{c.layout, c.pipeline_degree, c.data_degree};
    candidate_step& step = made.step;
    step.links = pipeline_links(machine, grid);
    step.rings = replica_rings(machine, grid);
    step.replicas = c.data_degree;
    step.buckets = gradient_buckets(costs, made.cut, c.split_backward);
    for (const gradient_bucket& b : step.buckets) {
        made.gradient_bytes += ring_all_reduce_bytes(b.bytes, c.data_degree);
    }

    problem_options ask{};
    ask.microbatches = c.microbatches;
    ask.split_backward = c.split_backward;
    ask.routing = c.routing;
    ask.links = step.links;
    step.plain = make_problem(costs, made.cut, ask);
    ask.recompute = c.recompute;
    step.problem = make_problem(costs, made.cut, ask);

    const memory_profile alone = profile_memory(step.problem, index_problem(step.problem));
    for (int d = 0; d != c.pipeline_degree; ++d) {
        const std::int64_t copies = parameter_bytes_on(made.cut, costs, d, options.parameter_copies);
        const std::int64_t one = parameter_bytes_on(made.cut, costs, d, 1);
        const least_memory need{d, copies, detail::workspace_on(costs, made.cut, d),
                                alone.peak_from[static_cast<std::size_t>(d)].front()};
        if (d == 0 || need.total_bytes() > made.least.total_bytes()) { made.least = need; }
        step.device_optimizer_us.push_back(optimizer_us(one, options.parameter_copies, options.memory_gb_per_s));
        if (limit_bytes > 0) {
            const std::int64_t fixed = need.parameter_bytes + need.workspace_bytes;
            step.problem.memory_limit_bytes.push_back(std::max<std::int64_t>(limit_bytes - fixed, 0));
        }
    }
    return made;
}

/// A candidate's plan and what its step takes in the simulator.
struct evaluated_candidate {
    plan planned{};
    double step_us{};
    /// When the passes of the pipeline end; the rest of the step is reduction and optimizer that nothing hides.
    double pipeline_us{};
    double bubble_ratio{};
};

namespace detail {

[[nodiscard]] inline schedule order_candidate(const schedule_problem& problem, const tune_candidate& c,
                                              const tune_options& options) {
    return c.method == schedule_method::list ? list_schedule(problem, options.list) : order_for(problem, c.method);
}

/// End of the last pass of every stage, from the instructions that ran.
[[nodiscard]] inline std::vector<double> stage_ends(const partition& cut, const std::vector<program>& programs,
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

/// Simulates one order of a prepared candidate and fills in the prediction; bytes of memory included.
[[nodiscard]] inline evaluated_candidate simulate_candidate(const cost_table& costs, const tune_candidate& c,
                                                            const prepared_candidate& prepared, schedule order,
                                                            const tune_options& options) {
    evaluated_candidate made{};
    plan& planned = made.planned;
    planned.model = costs.model;
    planned.pipeline_degree = c.pipeline_degree;
    planned.microbatches = c.microbatches;
    planned.microbatch_size = c.microbatch_size;
    planned.split_backward = c.split_backward;
    planned.routing = c.routing;
    planned.recompute = c.recompute;
    planned.cut = prepared.cut;
    planned.order = std::move(order);

    const step_model model{planned, costs};
    const std::vector<program> programs = lower(planned, model);
    simulation_options world{};
    world.links = prepared.step.links;
    const simulation ran = simulate(planned, model, programs, world);
    std::vector<double> device_ends{};
    for (const auto& passes : ran.ranks) { device_ends.push_back(passes.empty() ? 0.0 : passes.back().end_us); }
    const candidate_step& step = prepared.step;
    const step_end end = end_step(step.buckets, step.replicas, step.rings, stage_ends(prepared.cut, programs, ran),
                                  device_ends, step.device_optimizer_us);
    made.step_us = end.step_us;
    made.pipeline_us = ran.step_us;
    double busy_us = (1.0 - ran.bubble_ratio) * ran.step_us * c.pipeline_degree;
    for (const double us : step.device_optimizer_us) { busy_us += us; }
    made.bubble_ratio = end.step_us > 0 ? std::max(0.0, 1.0 - busy_us / (c.pipeline_degree * end.step_us)) : 0.0;

    prediction& expected = planned.predicted;
    expected.step_us = end.step_us;
    expected.bubble_ratio = made.bubble_ratio;
    expected.samples_per_s = end.step_us > 0 ? 1e6 * options.global_batch / end.step_us : 0.0;
    for (const program& of_rank : programs) {
        expected.peak_memory_bytes.push_back(
            lay_out(model, of_rank).total_bytes() +
            parameter_bytes_on(prepared.cut, costs, of_rank.device, options.parameter_copies));
    }
    const traffic moved = traffic_of(prepared.cut, costs, c.routing);
    expected.boundary_bytes = moved.boundary() * c.microbatches;
    expected.skip_bytes = moved.skip() * c.microbatches;
    planned.data_degree = c.data_degree;
    return made;
}

} // namespace detail

/// Orders a prepared candidate's passes and simulates the step: contention of the pipeline's messages, reduction over the
/// replicas, optimizer. The plan's prediction is of the whole step and all replicas' samples; its bytes are of one replica.
///
/// Where the exact layout of memory needs more than the limit, the excess is taken from what the scheduler may hold and it
/// is asked again, as plan_pipeline does. Throws infeasible_error when the limit cannot be met.
[[nodiscard]] inline evaluated_candidate evaluate_candidate(const cost_table& costs, const tune_candidate& c,
                                                            const prepared_candidate& prepared,
                                                            const tune_options& options) {
    schedule_problem problem = prepared.step.problem;
    // An order that does not adapt is judged by its exact layout alone.
    if (!adapts_to_memory(c.method)) { problem.memory_limit_bytes.clear(); }
    for (int attempt = 0;; ++attempt) {
        evaluated_candidate made =
            detail::simulate_candidate(costs, c, prepared, detail::order_candidate(problem, c, options), options);
        const auto& peaks = made.planned.predicted.peak_memory_bytes;
        const int over = detail::worst_over(peaks, prepared.limit_bytes);
        if (over < 0) { return made; }
        constexpr int attempts = 8;
        if (attempt == attempts || !adapts_to_memory(c.method)) {
            throw infeasible_error("device " + std::to_string(over) + " needs " +
                                   std::to_string(peaks[static_cast<std::size_t>(over)]) + " bytes of " +
                                   std::to_string(prepared.limit_bytes));
        }
        for (std::size_t d = 0; d != peaks.size(); ++d) {
            std::int64_t& room = problem.memory_limit_bytes[d];
            room = std::max<std::int64_t>(room - std::max<std::int64_t>(peaks[d] - prepared.limit_bytes, 0), 0);
        }
    }
}

} // namespace pulse
