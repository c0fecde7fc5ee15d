#pragma once

#include <utility>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/model/cascade.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/plan/kept_by.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/tune/plan_request.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse {

/// The plan of a fully specified cascade of two backbones: both cut together (find_cascade_cut), ordered together
/// (list_search) and simulated, with the same number of microbatches for each. Its costs are join_costs of both.
///
/// The candidate must be folded, in one wave, on one pipeline, with collocated skips and the order of the list
/// scheduler. Throws input_error for any other, and as join_costs does; infeasible_error if the backbones cannot be cut
/// over the devices or do not fit into their memory.
[[nodiscard]] PULSE_INLINE planned plan_cascade(const cost_table& first, const cost_table& second,
                                                const tune_candidate& c, const cluster& machine,
                                                const candidate_options& options = candidate_options{});

/// The best plan of a cascade, with the outcome of every candidate, and the plans of its backbones alone.
struct cascade_tuning : tuning {
    /// Each backbone alone, on a pipeline of the same devices and with as many samples: trained one after the other,
    /// they take the sum of both steps.
    tuning first{};
    tuning second{};

    /// Step time of the backbones one after the other, over that of the cascade.
    [[nodiscard]] double gain() const noexcept {
        return (first.plan.predicted.step_us + second.plan.predicted.step_us) / plan.predicted.step_us;
    }
};

/// The best plan of a cascade for a request, which is read as in plan_for: microbatch size, split and recomputation are
/// tuned if absent, and `seconds` go to the plans of the backbones alone. Each backbone trains on the whole batch.
///
/// Throws input_error, naming the field, for what cascades do not support: replicas, other placements or orders, waves,
/// frozen networks, self-conditioning, gradient release.
[[nodiscard]] PULSE_INLINE cascade_tuning plan_cascade_for(const cost_source& first, const cost_source& second,
                                                           plan_request request);

/// For two models on a backend, at the extents of their types: the request may give none. Costs follow from the rates
/// of the request's device (analytic_costs).
template <class First, class Second, class Backend>
[[nodiscard]] cascade_tuning plan_cascade_for(plan_request request) {
    if (!request.device) { throw input_error("device: must be given when there are no measured costs"); }
    if (request.extent != extent{}) { throw input_error("extent: a cascade has the extents of its models' types"); }
    if (!request.kept) { request.kept = kept_by<cascade<First, Second>, Backend>(false, request.optimizer); }
    const auto costs_of = [on = *request.device]<class Model>(const Model*) {
        return [on](int samples) {
            static constexpr auto graph = graph_of<Model>();
            return analytic_costs(graph.view(), on, samples, static_cast<int>(sizeof(typename Backend::scalar)));
        };
    };
    return plan_cascade_for(cost_source{costs_of(static_cast<const First*>(nullptr))},
                            cost_source{costs_of(static_cast<const Second*>(nullptr))}, std::move(request));
}

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/cascade_plan.ipp> // IWYU pragma: keep
#endif
