#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/extent_step.hpp>

namespace pulse::detail {

PULSE_INLINE std::vector<extent_step> extent_steps(const planned& made) {
    std::vector<extent_step> all;
    made.each_extent([&](const extent& to, const plan& planned, const cost_table& costs, double) {
        check_moments(made.kept.form, costs);
        all.push_back({&planned, &costs, to});
    });
    return all;
}

PULSE_INLINE replica_place placed(const std::vector<extent_step>& of, const any_transport& transport,
                                  rank_layout layout) {
    const plan& planned = *of.front().planned;
    for (const extent_step& other : of) {
        const plan& with = *other.planned;
        if (with.cut != planned.cut || with.pipeline_degree != planned.pipeline_degree ||
            with.data_degree != planned.data_degree || with.node_replicas != planned.node_replicas ||
            with.microbatches != planned.microbatches || with.microbatch_size != planned.microbatch_size ||
            with.previews != planned.previews || with.model != planned.model ||
            with.split_backward != planned.split_backward || with.routing != planned.routing ||
            with.recompute != planned.recompute || with.gradient_release != planned.gradient_release ||
            with.further_chains != planned.further_chains) {
            throw input_error{"pulse: the plans of a run's extents may differ only in their order"};
        }
        // A step's frozen tasks make what the next step reads, perhaps at another extent.
        if (with.frozen_tasks != planned.frozen_tasks || other.costs->frozen != of.front().costs->frozen) {
            throw input_error{"pulse: all extents of a run must have the same frozen tasks at the same costs"};
        }
    }
    if (planned.data_degree < 1 || planned.pipeline_degree < 1) {
        throw input_error{"pulse: plan: pipeline_degree and data_degree must be at least 1"};
    }
    if (std::int64_t{planned.pipeline_degree} * planned.data_degree != transport.size()) {
        throw input_error{"pulse: the plan is for " + std::to_string(planned.pipeline_degree) + " x " +
                          std::to_string(planned.data_degree) + " ranks (pipeline_degree x data_degree), not for " +
                          std::to_string(transport.size())};
    }
    if (!planned.has_even_groups()) {
        throw input_error{"pulse: plan: node_replicas must be 1 or a power of two below data_degree that divides it"};
    }
    replica_place mine = place_of({layout, planned.pipeline_degree, planned.data_degree}, transport.rank());
    mine.node_replicas = planned.node_replicas;
    return mine;
}

PULSE_INLINE std::string place_of_error(const any_transport& transport, std::size_t i, const instruction& at,
                                        const char* what) noexcept {
    try {
        return "rank " + std::to_string(transport.rank()) + ", instruction " + std::to_string(i) + " (" + to_text(at) +
               "): " + what;
    } catch (...) { return {}; }
}

} // namespace pulse::detail
