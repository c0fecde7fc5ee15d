#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/simulate/grid_links.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/candidate_bound.hpp>
#include <pulse/tune/candidate_cut.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/frozen_mode.hpp>
#include <pulse/tune/frozen_step.hpp>
#include <pulse/tune/known_candidates.hpp>
#include <pulse/tune/least_memory.hpp>
#include <pulse/tune/prepared_candidate.hpp>

namespace pulse::detail {

PULSE_INLINE const cost_table& known_candidates::costs(int microbatch_size) {
    auto at = costs_.find(microbatch_size);
    if (at == costs_.end()) {
        cost_table table = costs_of_(microbatch_size);
        if (table.microbatch_size != microbatch_size) {
            throw input_error("tune: asked for costs of microbatch size " + std::to_string(microbatch_size) +
                              ", got a table for " + std::to_string(table.microbatch_size));
        }
        check_moments(options_.kept.form, table);
        at = costs_.emplace(microbatch_size, std::move(table)).first;
    }
    return at->second;
}

PULSE_INLINE memory_limits known_candidates::limits(const tune_candidate& c) const {
    return memory_limits_of(machine_, c, options_);
}

PULSE_INLINE known_candidates::cut_key known_candidates::key_of(const tune_candidate& c) const {
    // Only a folded cut considers what one microbatch keeps.
    const int keeps = c.kind == placement::folded && c.recompute == recomputation::none ? 1 : 0;
    // On unlike devices another layout has other devices, and the cut considers the optimizer's time per microbatch.
    const int layout = machine_.unlike.empty() ? 0 : static_cast<int>(c.layout);
    const int microbatches = machine_.unlike.empty() ? 0 : c.microbatches;
    return {static_cast<int>(c.kind),
            c.pipeline_degree,
            c.waves,
            c.microbatch_size,
            static_cast<int>(c.routing),
            keeps,
            c.sharded_optimizer ? 1 : 0,
            layout,
            microbatches,
            c.slack};
}

PULSE_INLINE const known_candidates::maybe_cut& known_candidates::cut(const tune_candidate& c) {
    const cut_key key = key_of(c);
    auto at = cuts_.find(key);
    if (at == cuts_.end()) {
        maybe_cut found{};
        try {
            found.cut = cut_candidate(costs_to_cut(costs(c.microbatch_size), c, machine_, options_), c,
                                      parameter_memory_of(options_, c), limits(c),
                                      pipeline_speeds(machine_, {c.layout, c.pipeline_degree, c.data_degree}));
        } catch (const infeasible_error& e) { found.why = e.what(); }
        at = cuts_.emplace(key, std::move(found)).first;
    }
    return at->second;
}

PULSE_INLINE const least_memory& known_candidates::least(const tune_candidate& c, const partition& here) {
    // If recomputing all stages is not enough, no choice of them is.
    const bool chosen = c.recompute == recomputation::selective;
    const stage_recomputation recompute = chosen ? stage_recomputation{recomputation::stages} : c.recompute;
    const std::tuple key{key_of(c), c.split_backward ? 1 : 0, static_cast<int>(recompute.kind)};
    auto at = least_.find(key);
    if (at == least_.end()) {
        const auto all = least_memory_of(costs(c.microbatch_size), here, c.split_backward, c.routing, recompute,
                                         parameter_memory_of(options_, c), c.data_degree, options_.gradient_release);
        const memory_limits most = limits(c);
        const auto free = [&](const least_memory& need) { return most.of(need.device) - need.total_bytes(); };
        at = least_
                 .emplace(key, *std::max_element(
                                   all.begin(), all.end(),
                                   [&](const least_memory& a, const least_memory& b) { return free(a) > free(b); }))
                 .first;
    }
    return at->second;
}

PULSE_INLINE prepared_candidate known_candidates::prepare(const tune_candidate& c) {
    return prepare_candidate(costs(c.microbatch_size), machine_, *cut(c).cut, c, options_, limits(c));
}

PULSE_INLINE bool known_candidates::encodes(const tune_candidate& c) {
    const bool frozen = options_.frozen != frozen_mode::none && !costs(c.microbatch_size).frozen.empty();
    if (frozen && !machine_.unlike.empty()) {
        throw input_error("tune: frozen components run as tasks only on devices that are all alike");
    }
    return frozen;
}

PULSE_INLINE double known_candidates::bound_us(const tune_candidate& c, const candidate_step& step, double known_us) {
    if (!encodes(c)) { return step_bound_us(step, known_us); }
    return frozen_step_bound_us(costs(c.microbatch_size), c, step, known_us);
}

PULSE_INLINE evaluated_candidate known_candidates::evaluate(const tune_candidate& c, const prepared_candidate& ready) {
    const cost_table& table = costs(c.microbatch_size);
    const auto alone = [&](const prepared_candidate& one) { return evaluate_candidate(table, c, one, options_.list); };
    return encodes(c) ? evaluate_beside_frozen(table, c, ready, options_.frozen, alone) : alone(ready);
}

PULSE_INLINE evaluated_candidate known_candidates::filled(const tune_candidate& c, const prepared_candidate& ready,
                                                          const evaluated_candidate& alone, std::int64_t placements) {
    return fill_frozen(costs(c.microbatch_size), alone, ready, options_.frozen, lower_bound_us(ready.step.plain),
                       placements);
}

} // namespace pulse::detail
