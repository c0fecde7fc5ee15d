#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/timed_orders.hpp>
#include <pulse/schedule/validate_fill.hpp>
#include <pulse/tune/candidate_bound.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/frozen_step.hpp>
#include <pulse/tune/search_space.hpp>
#include <pulse/tune/tuner.hpp>

#include "frozen_setting.hpp"
#include "fully_sharded.hpp"
#include "greedy_fill.hpp"

namespace pulse_bench {

/// The result of a method; idle is the share of the step in which a device does not compute.
struct frozen_outcome {
    std::string method{};
    double step_us{}; ///< 0 when there is no plan
    double idle{};
    std::string plan{};
    std::string why{}; ///< when there is no plan
};

/// The search space of all methods: 16-bit values and gradients, 32-bit masters and two moments.
[[nodiscard]] inline pulse::tune_options frozen_space(const frozen_setting& in, double refine_seconds) {
    pulse::tune_options o{};
    o.global_batch = in.global_batch;
    for (int p = 2; p <= std::min(16, in.machine.devices()); p *= 2) { o.pipeline_degrees.push_back(p); }
    o.kept = {.scalar_bytes = 2, .gradient_bytes = 2, .state_bytes = 12};
    o.memory_gb_per_s = pulse::a100_80gb.memory_gb_per_s * pulse::a100_80gb.efficiency;
    o.sharded_optimizers = {false, true};
    o.placements = {pulse::placement::folded, pulse::placement::sequential};
    o.frozen = pulse::frozen_mode::bubbles;
    if (refine_seconds > 0) {
        o.refine = [refine_seconds](const pulse::schedule_problem& problem) {
            return synthesize(problem, {.limit = {.seconds = refine_seconds}});
        };
    }
    return o;
}

inline void choose_one_f_one_b(pulse::tune_options& o) {
    o.placements = {pulse::placement::sequential};
    o.methods = {pulse::schedule_method::one_f_one_b};
    o.split_backwards = {false};
    std::erase(o.recomputations, pulse::recomputation::selective);
    o.exchange = pulse::replica_exchange::ring;
    o.refine = {};
}

[[nodiscard]] inline frozen_outcome tuned_outcome(std::string method, const pulse::cost_source& costs_of,
                                                  const frozen_setting& in, const pulse::tune_options& space,
                                                  std::optional<pulse::tuning>* keep = nullptr) {
    frozen_outcome out{.method = std::move(method)};
    try {
        pulse::tuning made = tune(costs_of, in.machine, space);
        out.step_us = made.best_row().step_us;
        out.idle = made.best_row().bubble_ratio;
        out.plan = to_text(made.best_row().candidate);
        if (keep != nullptr) { *keep = std::move(made); }
    } catch (const pulse::infeasible_error& e) { out.why = e.what(); }
    return out;
}

/// Rank 0 of a pipeline encodes each microbatch before its first stage; the cuts account for that time.
[[nodiscard]] inline frozen_outcome on_rank_0(std::string method, const frozen_setting& in, pulse::tune_options space) {
    space.frozen = pulse::frozen_mode::none;
    space.memory_limit_bytes = in.machine.memory_bytes - encoding_bytes(frozen_setting_costs(in, 1));
    const auto costs_of = [&](int size) {
        pulse::cost_table costs = frozen_setting_costs(in, size);
        costs.layers.front().forward_us += encoding_us(costs, size);
        costs.frozen.clear();
        return costs;
    };
    return tuned_outcome(std::move(method), costs_of, in, space);
}

/// The fastest of DiffusionPipe's fillings of `passes` that ignore bubbles below 0, 1 or 10 ms.
[[nodiscard]] inline pulse::filled_schedule best_greedy(const pulse::schedule& passes, pulse::frozen_work work) {
    work.hosts.clear();
    work.split.clear();
    std::optional<pulse::filled_schedule> best{};
    for (const double shortest_us : {0.0, 1e3, 1e4}) {
        pulse::filled_schedule made = pulse::bench::greedy_fill(passes, work, shortest_us);
        if (!best || made.makespan_us() < best->makespan_us()) { best = std::move(made); }
    }
    return std::move(*best);
}

/// DiffusionPipe's method: the 1F1B pipeline that is fastest with its bubbles filled greedily.
[[nodiscard]] inline frozen_outcome greedy_one_f_one_b(const frozen_setting& in, pulse::tune_options space) {
    using namespace pulse;
    frozen_outcome out{.method = "1F1B, greedily filled"};
    choose_one_f_one_b(space);
    struct open_candidate {
        tune_candidate of{};
        prepared_candidate ready{};
        double bound_us{};
    };
    std::map<int, cost_table> tables{};
    std::vector<open_candidate> all{};
    left_out_candidates left_out{};
    for (const tune_candidate& c : enumerate_candidates(space, in.machine.devices(), in.machine.nodes, left_out)) {
        if (tables.count(c.microbatch_size) == 0) {
            tables[c.microbatch_size] = frozen_setting_costs(in, c.microbatch_size);
        }
        const cost_table& costs = tables[c.microbatch_size];
        try {
            auto ready = prepare_candidate(
                costs, in.machine, cut_candidate(costs, c, parameter_memory_of(space, c), in.machine.memory_bytes), c,
                space, in.machine.memory_bytes);
            const double bound_us = frozen_step_bound_us(costs, c, ready.step);
            all.push_back({c, std::move(ready), bound_us});
        } catch (const infeasible_error& e) { out.why = e.what(); }
    }
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bound_us < b.bound_us; });
    for (const open_candidate& one : all) {
        if (out.step_us > 0 && one.bound_us >= out.step_us) { break; }
        const cost_table& costs = tables[one.of.microbatch_size];
        try {
            const auto places = frozen_placements(costs, one.of, one.ready, frozen_mode::bubbles);
            const auto everywhere = std::find_if(places.begin(), places.end(), [&](const frozen_placement& p) {
                return p.work.split.empty() &&
                       std::all_of(p.work.hosts.begin(), p.work.hosts.end(),
                                   [&](const auto& here) { return here.size() == costs.frozen.size(); });
            });
            if (everywhere == places.end()) { continue; }
            plan made = evaluate_candidate(costs, one.of, beside_frozen(one.ready, *everywhere), space.list).planned;
            filled_schedule filled = best_greedy(made.order, everywhere->work);
            made.order = std::move(filled.passes);
            made.frozen_tasks = std::move(filled.tasks);
            made.frozen_hosts = everywhere->work.hosts;
            pulse::detail::predict_plan(made, costs, one.ready, in.machine.memory_bytes, false);
            const auto& peaks = made.predicted.peak_memory_bytes;
            const bool fits = *std::max_element(peaks.begin(), peaks.end()) <= in.machine.memory_bytes;
            if (!fits || (out.step_us > 0 && made.predicted.step_us >= out.step_us)) { continue; }
            out.step_us = made.predicted.step_us;
            out.idle = made.predicted.bubble_ratio;
            out.plan = to_text(one.of);
        } catch (const infeasible_error& e) { out.why = e.what(); }
    }
    return out;
}

/// DiffusionPipe's filling of the same passes as the plan of pulse whose step it is compared with.
[[nodiscard]] inline frozen_outcome greedy_on_same(const frozen_setting& in, const pulse::tune_options& space,
                                                   const pulse::tuning& ours) {
    using namespace pulse;
    tune_candidate c = ours.best_row().candidate;
    c.recompute = ours.plan.recompute;
    const prepared_candidate ready =
        prepare_candidate(ours.costs, in.machine, ours.plan.cut, c, space, in.machine.memory_bytes);
    const schedule_problem& problem = ready.step.problem;
    const schedule alone = pulse::detail::retimed(problem, ours.plan.order);
    filled_schedule filled = best_greedy(alone, ours.frozen.work);
    frozen_work work = ours.frozen.work;
    work.hosts.clear();
    work.split.clear();
    validate_fill(problem, work, filled.passes, filled.tasks);
    plan made = ours.plan;
    made.order = std::move(filled.passes);
    made.frozen_tasks = std::move(filled.tasks);
    for (auto& here : made.frozen_hosts) {
        here.clear();
        for (std::size_t k = 0; k != work.components.size(); ++k) { here.push_back(static_cast<int>(k)); }
    }
    pulse::detail::predict_plan(made, ours.costs, ready, in.machine.memory_bytes, false);
    return {.method = "greedy on pulse's passes",
            .step_us = made.predicted.step_us,
            .idle = made.predicted.bubble_ratio,
            .plan = to_text(c),
            .why = {}};
}

/// Fully sharded data parallelism; every device encodes its samples before the step.
[[nodiscard]] inline frozen_outcome sharded_outcome(const frozen_setting& in, const pulse::tune_options& space,
                                                    bool hybrid) {
    frozen_outcome out{.method = hybrid ? "FSDP, hybrid, inline" : "FSDP, inline"};
    const pulse::cost_table one = frozen_setting_costs(in, 1);
    pulse::cluster machine = in.machine;
    machine.memory_bytes -= encoding_bytes(one);
    const auto best = tune_sharding([&](int size) { return frozen_setting_costs(in, size); }, machine,
                                    {space.kept, space.memory_gb_per_s}, in.global_batch, hybrid);
    if (!best) {
        out.why = "no microbatch fits, or the devices do not divide the batch";
        return out;
    }
    const double encoding = encoding_us(one, in.global_batch / machine.devices());
    out.step_us = best->step.step_us + encoding;
    out.idle = 1 - (best->step.compute_us + encoding) / out.step_us;
    out.plan = to_text(best->how);
    return out;
}

} // namespace pulse_bench
