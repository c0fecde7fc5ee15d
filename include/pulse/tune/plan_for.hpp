#pragma once

#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/plan/kept_by.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/tune/extent_plans.hpp>
#include <pulse/tune/plan_request.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse {

/// The best plan for a request: the tuner chooses what is absent and keeps what is given; then it searches for
/// orders of the best few candidates for `seconds`.
///
/// `costs_of(b)` is the cost table for microbatches of b samples. With every field given there is one candidate,
/// planned as plan_candidate does. Step times are simulated, with reduction and optimizer. Throws input_error, naming
/// the field, for a request that contradicts itself, and as tune() does.
[[nodiscard]] PULSE_INLINE tuning plan_for(const cost_source& costs_of, const plan_request& request);

/// The same at the extents of the request: with several, one plan on their mean costs, then an order for each
/// (plan_extents), with half of the seconds for the one and half for the others.
[[nodiscard]] PULSE_INLINE tuning plan_for(const extent_cost_source& costs_of, const plan_request& request);

/// From a profile, which has one microbatch size: the plan has the same unless the request has another, to which times
/// and bytes are scaled (scaled_costs).
[[nodiscard]] PULSE_INLINE tuning plan_for(const cost_table& costs, plan_request request);

/// For a model on a backend, at the request's extents, with `frozen` components added to the costs, which follow from
/// the rates of the request's device (analytic_costs); model and backend determine what a rank keeps per parameter.
template <any_model Model, class Backend>
[[nodiscard]] tuning plan_for(plan_request request, const std::vector<frozen_component>& frozen = {}) {
    if (!request.device) { throw input_error("device: must be given when there are no measured costs"); }
    if (!request.kept) { request.kept = kept_by<Model, Backend>(false, request.optimizer); }
    return plan_for(
        [on = *request.device, &frozen](int samples, const extent& to) {
            const auto graph = graph_of<Model>(resize<Model>(to));
            cost_table costs =
                analytic_costs(graph.view(), on, samples, static_cast<int>(sizeof(typename Backend::scalar)));
            costs.frozen = frozen;
            return costs;
        },
        request);
}

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/plan_for.ipp> // IWYU pragma: keep
#endif
