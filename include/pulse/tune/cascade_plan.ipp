#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/partition/cascade.hpp>
#include <pulse/partition/merge_layers.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/check_costs.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/profile/join_costs.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/cascade_problem.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/timed_orders.hpp>
#include <pulse/simulate/grid_links.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/cascade_plan.hpp>
#include <pulse/tune/recomputed_stages.hpp>
#include <pulse/tune/step_end.hpp>

namespace pulse {

namespace detail {

/// Throws input_error for what plan_cascade does not support.
inline void require_cascade(const tune_candidate& c) {
    if (c.microbatches < 1) { throw input_error("microbatches: it must be at least 1"); }
    if (c.data_degree != 1) { throw input_error("data_degree: a cascade has one pipeline, without replicas"); }
    if (c.kind != placement::folded || c.waves != 1 || c.fold != fold_cut::collocated || c.slack > 0) {
        throw input_error("placement: a cascade is folded in one wave, with both ends of every skip on one device");
    }
    if (c.method != schedule_method::list) {
        throw input_error("schedule: it must be list for a cascade, not " + std::string{name_of(c.method)});
    }
}

/// Cuts both backbones, within the memory of the devices if possible. The search covers pairs of cuts in both models,
/// so their cheapest neighbouring layers are merged first.
[[nodiscard]] inline cascade_cut cut_cascade(const cost_table& first, const cost_table& second, const tune_candidate& c,
                                             const parameter_memory& kept, std::int64_t limit_bytes) {
    memory_model memory{};
    memory.limit_bytes = limit_bytes;
    memory.state_factor = (kept.total_bytes() + kept.scalar_bytes - 1) / kept.scalar_bytes;
    memory.in_flight = c.recompute == recomputation::none ? 1 : 0;
    const merged_layers one = merge_layers(first, 56);
    const merged_layers other = merge_layers(second, 56);
    for (const merged_layers* merged : {&one, &other}) { check_microbatch(merged->costs); }
    cascade_cut found = find_cascade_cut(one.costs, other.costs, c.pipeline_degree, memory);
    if (!found.found() && limit_bytes > 0) { found = find_cascade_cut(one.costs, other.costs, c.pipeline_degree); }
    if (found.found()) { return {one.of_layers(std::move(found.first)), other.of_layers(std::move(found.second))}; }
    throw infeasible_error("a cascade of " + first.model.str() + " and " + second.model.str() + " has no cut over " +
                           std::to_string(c.pipeline_degree) + (c.pipeline_degree == 1 ? " device" : " devices") +
                           ": each needs two stages per device, and both ends of every skip on one");
}

/// The stages of the second backbone after those of the first.
[[nodiscard]] inline partition join_cuts(const cascade_cut& cut, int first_layers) {
    partition joined = cut.first;
    const int stages = static_cast<int>(joined.stages.size());
    for (stage s : cut.second.stages) {
        s.index += stages;
        s.first_layer += first_layers;
        s.last_layer += first_layers;
        joined.stages.push_back(s);
    }
    return joined;
}

/// plan_cascade for a fully specified candidate, in the order of another plan if one is given; sets `world` to what the
/// plan was simulated on.
[[nodiscard]] inline planned plan_cascade_in(simulation_options& world, const cost_table& first,
                                             const cost_table& second, const tune_candidate& c, const cluster& machine,
                                             const candidate_options& options, const schedule* order = nullptr) {
    check_parameter_memory(options.kept);
    require_cascade(c);
    if (!machine.unlike.empty()) { throw input_error("cluster: a cascade needs devices that are all alike"); }
    for (const cost_table* backbone : {&first, &second}) { check_microbatch(*backbone); }
    cost_table costs = join_costs(first, second);
    check_moments(options.kept.form, costs);
    const std::int64_t limit = options.memory_limit_bytes > 0 ? options.memory_limit_bytes : machine.memory_bytes;
    const parameter_memory kept = parameter_memory_of(options, c);
    const cascade_cut cut = cut_cascade(first, second, c, kept, limit);

    prepared_candidate ready{};
    ready.cut = join_cuts(cut, static_cast<int>(first.layers.size()));
    ready.limits = limit;
    candidate_step& step = ready.step;
    step.world = simulated_on(machine, rank_grid{c.layout, c.pipeline_degree, 1}, options.exchange);
    step.world.kept = kept;
    problem_options ask{};
    ask.microbatches = c.microbatches;
    ask.split_backward = c.split_backward;
    ask.routing = c.routing;
    ask.links = step.world.links;
    step.plain = make_cascade_problem(first, cut.first, second, cut.second, ask);
    ask.recompute = c.recompute;
    step.problem = make_cascade_problem(first, cut.first, second, cut.second, ask);

    plan made = unordered_plan(costs, ready.cut, c, step);
    made.further_chains = step.problem.further_chains;

    // A device updates its parameters after its last pass.
    const step_model model{made, costs};
    double least_optimizer_us = std::numeric_limits<double>::infinity();
    double& bound_us = made.predicted.lower_bound_us;
    for (int d = 0; d != c.pipeline_degree; ++d) {
        const double own_us = optimizer_us_of(costs, options, kept, parameter_bytes_on(model, d));
        double load_us = 0;
        for (const stage_timing& s : step.plain.stages) {
            if (s.device == d) { load_us += s.forward_us + s.backward_input_us + s.backward_weight_us; }
        }
        step.world.device_optimizer_us.push_back(own_us);
        least_optimizer_us = std::min(least_optimizer_us, own_us);
        bound_us = std::max(bound_us, c.microbatches * load_us + own_us);
    }
    bound_us = std::max(bound_us, lower_bound_us(step.plain) + least_optimizer_us);

    made.order = order != nullptr ? retimed(step.problem, *order) : list_schedule(step.problem, options.list);
    predict_plan(made, costs, ready, limit, false);
    const auto& peaks = made.predicted.peak_memory_bytes;
    if (const int device = ready.limits.worst_over(peaks); device >= 0) {
        throw memory_error(device, peaks[static_cast<std::size_t>(device)], limit,
                           kept_bytes_on(model, device, 1, 0, kept));
    }
    world = std::move(step.world);
    return {std::move(made), std::move(costs), kept, c.layout};
}

/// plan_cascade_in for a candidate whose stages to recompute are still to be chosen: none if that fits; otherwise the
/// fastest of all stages and the sets that orders make necessary.
[[nodiscard]] inline planned plan_selective_cascade(simulation_options& world, const cost_table& first,
                                                    const cost_table& second, tune_candidate c, const cluster& machine,
                                                    const candidate_options& options) {
    const auto stages = static_cast<std::size_t>(4 * c.pipeline_degree);
    const auto with = [&](const std::vector<char>& flags, const schedule* order = nullptr) {
        c.recompute = stage_recomputation{flags};
        return plan_cascade_in(world, first, second, c, machine, options, order);
    };
    try {
        return with(std::vector<char>(stages, 0));
    } catch (const memory_error&) {} // so some stages must be recomputed
    planned best = with(std::vector<char>(stages, 1));
    const std::int64_t limit = options.memory_limit_bytes > 0 ? options.memory_limit_bytes : machine.memory_bytes;
    for (int round = 0; round != 3; ++round) {
        const std::vector<char> flags = choose_recomputed_stages(best.plan, best.costs, best.kept, limit);
        if (flags.empty() || flags == best.plan.recompute.stages) { break; }
        const double before_us = best.plan.predicted.step_us;
        const schedule chosen_for = best.plan.order;
        for (const schedule* order : {&chosen_for, static_cast<const schedule*>(nullptr)}) {
            try {
                planned found = with(flags, order);
                if (found.plan.predicted.step_us < best.plan.predicted.step_us) { best = std::move(found); }
            } catch (const memory_error&) { continue; }
        }
        if (!(best.plan.predicted.step_us < before_us)) { break; }
    }
    return best;
}

/// As plan_cascade; sets `world` to what the plan was simulated on.
[[nodiscard]] inline planned plan_any_cascade(simulation_options& world, const cost_table& first,
                                              const cost_table& second, const tune_candidate& c, const cluster& machine,
                                              const candidate_options& options) {
    const bool choose = c.recompute == recomputation::selective; // selective without flags
    return choose ? plan_selective_cascade(world, first, second, c, machine, options)
                  : plan_cascade_in(world, first, second, c, machine, options);
}

/// Throws input_error, naming the field, for requests that a cascade does not support.
inline void require_cascade_request(const plan_request& asked) {
    const request_words& words = asked.words;
    const auto refuse = [](const std::string& word, const char* why) {
        throw input_error(word + ": a cascade " + why);
    };
    if (asked.data_degree.value_or(1) != 1) { refuse(words.data_degree, "has one pipeline, without replicas"); }
    if (asked.waves.value_or(1) != 1) { refuse(words.waves, "is folded in one wave"); }
    if (asked.placement.value_or(placement::folded) != placement::folded) { refuse("placement", "is folded"); }
    if (asked.slack > 0) { refuse(words.slack, "is always cut by load, without slack"); }
    if (asked.schedule.value_or(schedule_method::list) != schedule_method::list) {
        refuse(words.schedule, "can only be ordered by list");
    }
    if (asked.sharded_optimizer.value_or(false)) { refuse(words.sharded_optimizer, "has no replicas to shard over"); }
    if (asked.gradient_release) {
        refuse(words.gradient_release, "updates its weights only after the gradients of both backbones are checked");
    }
    if (asked.self_conditioning) { refuse(words.self_conditioning, "has no previews"); }
    if (asked.frozen == frozen_mode::first || asked.frozen == frozen_mode::bubbles) {
        refuse(words.frozen, "encodes nothing: its data are already encoded");
    }
    if (asked.cluster && !asked.cluster->unlike.empty()) { refuse(words.cluster, "needs devices that are all alike"); }
    if (asked.pipeline_degree && asked.devices != 0 && *asked.pipeline_degree != asked.devices) {
        refuse(words.pipeline_degree, "is one pipeline over all devices");
    }
}

/// Microbatch sizes that divide the batch, ascending: powers of two, unless size or number is given.
[[nodiscard]] inline std::vector<int> cascade_sizes(const plan_request& asked) {
    std::vector<int> sizes;
    for (int size = 1; size <= asked.global_batch; ++size) {
        const bool wanted = asked.microbatch_size || asked.microbatches || (size & (size - 1)) == 0;
        if (wanted && asked.global_batch % size == 0 && asked.microbatch_size.value_or(size) == size &&
            asked.microbatches.value_or(asked.global_batch / size) == asked.global_batch / size) {
            sizes.push_back(size);
        }
    }
    return sizes;
}

/// The candidates for microbatch sizes, recomputation and splits that a request leaves open.
[[nodiscard]] inline std::vector<tune_candidate> cascade_candidates(const plan_request& asked, int devices) {
    std::vector<tune_candidate> all;
    for (const auto recompute :
         {recomputation::none, recomputation::skips, recomputation::stages, recomputation::selective}) {
        for (const int size : cascade_sizes(asked)) {
            for (const bool split : {true, false}) {
                if (asked.recompute.value_or(recompute) != recompute) { continue; }
                if (asked.split_backward.value_or(split) != split) { continue; }
                tune_candidate c{};
                c.pipeline_degree = devices;
                c.microbatch_size = size;
                c.microbatches = asked.global_batch / size;
                c.split_backward = split;
                c.recompute = recompute;
                c.routing = asked.routing.value_or(skip_routing::direct);
                all.push_back(c);
            }
        }
    }
    return all;
}

} // namespace detail

PULSE_INLINE planned plan_cascade(const cost_table& first, const cost_table& second, const tune_candidate& c,
                                  const cluster& machine, const candidate_options& options) {
    simulation_options world{};
    return detail::plan_any_cascade(world, first, second, c, machine, options);
}

PULSE_INLINE cascade_tuning plan_cascade_for(const cost_source& first, const cost_source& second, plan_request asked) {
    detail::require_cascade_request(asked);
    asked.data_degree = 1;
    asked.frozen = frozen_mode::none;
    const auto without_frozen = [](const cost_source& costs_of) {
        return [&costs_of](int samples) {
            cost_table costs = costs_of(samples);
            costs.frozen.clear();
            return costs;
        };
    };
    const cost_source one = without_frozen(first);
    const cost_source other = without_frozen(second);
    cascade_tuning found{};
    // These calls also check the rest of the request.
    asked.seconds /= 2;
    found.first = plan_for(one, asked);
    found.second = plan_for(other, asked);
    const tuning& alone = found.first;
    const int devices = alone.plan.pipeline_degree;
    asked.global_batch = alone.plan.microbatches * alone.plan.microbatch_size;

    candidate_options options{};
    options.kept = asked.kept ? *asked.kept : adamw_memory(4, asked.optimizer);
    options.memory_limit_bytes = asked.memory_limit_bytes;
    if (asked.device) { options.memory_gb_per_s = asked.device->memory_gb_per_s * asked.device->efficiency; }
    const cluster machine = asked.cluster.value_or(
        one_node(devices, usual_link_of(asked.device ? asked.device->name.view() : std::string_view{}).line,
                 asked.device ? asked.device->memory_bytes : 0));

    std::string why{};
    for (const tune_candidate& c : detail::cascade_candidates(asked, devices)) {
        const bool none = found.ranking.empty();
        found.rows.push_back({.candidate = c});
        tune_row& row = found.rows.back();
        if (!none && asked.stop.stop_requested()) { continue; }
        const auto fits_without = [&](const tune_row& before) {
            tune_candidate without = c;
            without.recompute = recomputation::none;
            return before.candidate == without && before.evaluated();
        };
        if (c.recompute == recomputation::selective &&
            std::any_of(found.rows.begin(), found.rows.end(), fits_without)) {
            row.verdict = tune_verdict::same;
            row.reason = "same: it fits and recomputes nothing";
            continue;
        }
        const cost_table a = one(c.microbatch_size);
        const cost_table b = other(c.microbatch_size);
        double load_us = 0;
        for (const cost_table* costs : {&a, &b}) {
            for (const layer_cost& layer : costs->layers) { load_us += layer.load_us(); }
        }
        row.bound_us = c.microbatches * load_us / devices;
        if (!none && row.bound_us >= found.plan.predicted.step_us) {
            row.verdict = tune_verdict::bound;
            row.reason = "its share of the work alone takes longer";
            continue;
        }
        try {
            simulation_options world{};
            planned made = detail::plan_any_cascade(world, a, b, c, machine, options);
            const prediction& expected = made.plan.predicted;
            row.verdict = tune_verdict::slower;
            row.reason = "another is faster";
            row.bound_us = expected.lower_bound_us;
            row.step_us = expected.step_us;
            row.samples_per_s = expected.samples_per_s;
            row.bubble_ratio = expected.bubble_ratio;
            row.peak_memory_bytes =
                *std::max_element(expected.peak_memory_bytes.begin(), expected.peak_memory_bytes.end());
            row.boundary_bytes = expected.boundary_bytes;
            row.skip_bytes = expected.skip_bytes;
            ++found.evaluations;
            found.ranking.push_back(found.rows.size() - 1);
            if (none || expected.step_us < found.plan.predicted.step_us) {
                static_cast<planned&>(found) = std::move(made);
                found.world = std::move(world);
                found.chosen = found.rows.size() - 1;
            }
        } catch (const memory_error& e) {
            row.verdict = tune_verdict::memory;
            row.reason = e.what();
        } catch (const infeasible_error& e) {
            row.verdict = tune_verdict::cut;
            row.reason = e.what();
        }
        if (why.empty()) { why = row.reason; }
    }
    if (found.ranking.empty()) {
        throw infeasible_error(why.empty() ? "no microbatch size and count make the requested batch" : why);
    }
    found.rows[found.chosen].verdict = tune_verdict::best;
    found.rows[found.chosen].reason.clear();
    for (const tune_row& row : found.rows) { ++found.counts[static_cast<std::size_t>(row.verdict)]; }
    std::stable_sort(found.ranking.begin(), found.ranking.end(),
                     [&](std::size_t a, std::size_t b) { return found.rows[a].step_us < found.rows[b].step_us; });
    found.finished = found.count(tune_verdict::not_reached) == 0;
    found.assumptions = found.first.assumptions;
    found.limits = found.first.limits;
    return found;
}

} // namespace pulse
