#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/partition/device_speed.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/simulate/duration.hpp>
#include <pulse/simulate/grid_links.hpp>
#include <pulse/simulate/simulation_options.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/candidate_bound.hpp>
#include <pulse/tune/prepared_candidate.hpp>
#include <pulse/tune/step_end.hpp>

namespace pulse {

namespace detail {

PULSE_CONSTEXPR plan unordered_plan(const cost_table& costs, partition cut, const tune_candidate& c,
                                    const candidate_step& step) {
    const int previews = step.plain.previews;
    plan made{};
    made.model = costs.model;
    made.pipeline_degree = cut.devices;
    made.data_degree = c.data_degree;
    made.node_replicas = step.world.node_replicas;
    made.microbatches = c.microbatches;
    made.microbatch_size = costs.microbatch_size;
    made.split_backward = c.split_backward;
    made.routing = c.routing;
    made.recompute = c.recompute;
    made.gradient_release = step.gradient_release;
    made.previews = previews;
    const traffic moved = traffic_of(cut, costs, c.routing);
    const bool apart = cut.stages.front().device != cut.stages.back().device;
    const std::int64_t preview = moved.boundary_forward + (apart ? costs.layers.back().output_bytes : 0);
    made.predicted.boundary_bytes = moved.boundary() * c.microbatches + preview * previews;
    made.predicted.skip_bytes = moved.skip() * c.microbatches + moved.skip_forward * previews;
    made.cut = std::move(cut);
    return made;
}

[[nodiscard]] constexpr problem_options problem_options_of(const tune_candidate& c, const simulation_options& world,
                                                           int previews) {
    problem_options ask{};
    ask.microbatches = c.microbatches;
    ask.split_backward = c.split_backward;
    ask.routing = c.routing;
    ask.recompute = c.recompute;
    ask.links = world.links;
    ask.device_speed = world.device_speed;
    ask.previews = previews;
    return ask;
}

/// Durations of the exchanges between replicas in a step with these buckets, each followed by the time that it occupies
/// links that it shares with others.
[[nodiscard]] constexpr std::vector<double> exchange_times(const simulation_options& world, const rank_grid& grid,
                                                           const std::vector<gradient_bucket>& buckets) {
    std::vector<double> times{};
    std::vector<std::int64_t> parameters(static_cast<std::size_t>(grid.pipeline), 0);
    const auto add = [&](std::size_t device, std::int64_t share_bytes) {
        times.push_back(exchange_us(world, device, share_bytes, grid.data));
        times.push_back(exchange_occupied_us(world, device, share_bytes, grid.data));
    };
    for (const gradient_bucket& b : buckets) {
        const auto device = static_cast<std::size_t>(b.device);
        add(device, share_bytes_of(gradient_bytes_of(b.bytes, world.kept), grid.data));
        parameters[device] += b.bytes;
    }
    for (std::size_t d = 0; d != parameters.size(); ++d) {
        if (world.kept.sharded) { add(d, weight_share_bytes(parameters[d], grid.data, world.kept)); }
    }
    return times;
}

/// The simulated world of a grid. Replicas that exchange directly sum inside nodes first if that makes some exchange
/// shorter and none longer.
[[nodiscard]] constexpr simulation_options cheapest_world(const cluster& machine, const rank_grid& grid,
                                                          replica_exchange how, const parameter_memory& kept,
                                                          const std::vector<gradient_bucket>& buckets) {
    simulation_options best = simulated_on(machine, grid, how);
    best.kept = kept;
    if (how == replica_exchange::ring) { return best; }
    std::vector<double> least = exchange_times(best, grid, buckets);
    for (const int size : possible_node_replicas(machine, grid)) {
        simulation_options other = best;
        other.node_replicas = size;
        for (int p = 0; p != grid.pipeline; ++p) {
            other.replica_rounds[static_cast<std::size_t>(p)] = replica_rounds_of(machine, grid, p, how, size);
        }
        std::vector<double> times = exchange_times(other, grid, buckets);
        bool longer = false;
        for (std::size_t e = 0; e != times.size(); ++e) { longer = longer || times[e] > least[e]; }
        if (longer || times == least) { continue; }
        best = std::move(other);
        least = std::move(times);
    }
    return best;
}

PULSE_CONSTEXPR prepared_candidate recomputing(const cost_table& costs, const tune_candidate& c,
                                               prepared_candidate prepared) {
    candidate_step& step = prepared.step;
    step.problem = make_problem(costs, prepared.cut, problem_options_of(c, step.world, step.plain.previews));
    return prepared;
}

} // namespace detail

PULSE_CONSTEXPR prepared_candidate prepare_candidate(const cost_table& costs, const cluster& machine, partition cut,
                                                     const tune_candidate& c, const candidate_options& options,
                                                     const memory_limits& limits) {
    prepared_candidate made{};
    made.cut = std::move(cut);
    made.limits = limits;
    const rank_grid grid{c.layout, c.pipeline_degree, c.data_degree};
    candidate_step& step = made.step;
    step.replicas = c.data_degree;
    step.gradient_release = options.gradient_release;
    step.buckets = gradient_buckets(costs, made.cut, c.split_backward);
    step.world = detail::cheapest_world(machine, grid, options.exchange, parameter_memory_of(options, c), step.buckets);
    const parameter_memory& kept = step.world.kept;
    for (gradient_bucket& b : step.buckets) {
        b.before_end_us /= detail::speed_of(step.world.device_speed, b.device);
        made.gradient_bytes += reduce_bytes(gradient_bytes_of(b.bytes, kept), c.data_degree, kept);
    }

    problem_options ask = detail::problem_options_of(c, step.world, options.self_conditioning ? c.microbatches / 2 : 0);
    step.problem = make_problem(costs, made.cut, ask);
    ask.recompute = recomputation::none;
    step.plain = make_problem(costs, made.cut, ask);

    const step_model model{detail::unordered_plan(costs, made.cut, c, step), costs};
    for (int d = 0; d != c.pipeline_degree; ++d) {
        const std::int64_t one = parameter_bytes_on(model, d);
        const std::int64_t stepped = kept.sharded ? share_bytes_of(one, c.data_degree) : one;
        step.parameter_bytes.push_back(one);
        step.world.device_optimizer_us.push_back(optimizer_us_of(costs, options, kept, stepped) /
                                                 detail::speed_of(step.world.device_speed, d));
        made.gradient_bytes += (c.data_degree - 1) * weight_share_bytes(one, c.data_degree, kept);
        std::int64_t workspace = 0;
        for (const stage& s : made.cut.stages) {
            for (int l = s.first_layer; l <= s.last_layer && s.device == d; ++l) {
                workspace = std::max(workspace, costs.layers[static_cast<std::size_t>(l)].workspace_bytes);
            }
        }
        made.fixed_bytes.push_back(kept_bytes_on(model, d, c.data_degree, c.data_degree - 1, kept) + workspace);
        // With several microbatches the gradients of a device's stages are mostly alive at the same time.
        if (c.microbatches > 1) {
            made.fixed_bytes.back() += gradient_bytes_of(one, kept) - gradient_bytes_on(model, d, kept);
        }
    }
    return made;
}

} // namespace pulse
