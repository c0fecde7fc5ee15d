#pragma once

#include <utility>

#include <pulse/core/error.hpp>
#include <pulse/frozen/pictures.hpp>
#include <pulse/frozen/pictures_task.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/plan/kept_by.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/tune/frozen_mode.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/tune/plan_request.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse {

/// As plan_for<Model, Backend>(request), for a pictures_task on these pictures: with the work and the memory of the
/// frozen networks, at the rates of the request's device.
///
/// Where the pictures have a cache nothing of them is left in a step. Else the networks run as the request says: in the
/// bubbles, all before the first pass, or, for frozen_mode::none and where `tuned` finds that no plan has room for them
/// as tasks, on the ranks of the first and the last stage before each step. Throws input_error on frozen tasks beside a
/// cache, and as plan_for does.
template <class Model, class Backend>
[[nodiscard]] tuning plan_for(plan_request request, const pictures<Model>& seen) {
    using task = pictures_task<Model, Backend>;
    if (!request.device) { throw input_error{"device: without measured costs a request needs one"}; }
    if (!request.kept) { request.kept = kept_by<Model, Backend>(); }
    const bool must = request.frozen == frozen_mode::first || request.frozen == frozen_mode::bubbles;
    if (!seen.options().cache.empty()) {
        if (must) {
            throw input_error{request.words.frozen + ": " + seen.options().words.cache + " leaves none to run"};
        }
        request.frozen = frozen_mode::none;
        return plan_for<Model, Backend>(std::move(request));
    }
    if (request.frozen != frozen_mode::none) {
        static constexpr auto graph = graph_of<Model>();
        const auto costs_of = [on = *request.device, frozen = task::tasks::estimated(*request.device)](int samples) {
            cost_table costs =
                analytic_costs(graph.view(), on, samples, static_cast<int>(sizeof(typename Backend::scalar)));
            costs.frozen = frozen;
            return costs;
        };
        try {
            return plan_for(costs_of, request);
        } catch (const infeasible_error&) {
            if (must) { throw; }
        }
    }
    request.frozen = frozen_mode::none;
    request.kept->beside_first_stage = task::first_stage_bytes;
    request.kept->beside_last_stage = task::last_stage_bytes;
    return plan_for<Model, Backend>(std::move(request));
}

} // namespace pulse
