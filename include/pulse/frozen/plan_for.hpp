#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/aspect_buckets.hpp>
#include <pulse/frozen/options.hpp>
#include <pulse/frozen/picture_extents.hpp>
#include <pulse/frozen/pictures.hpp>
#include <pulse/frozen/pictures_task.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/model.hpp>
#include <pulse/plan/kept_by.hpp>
#include <pulse/tune/extent_plans.hpp>
#include <pulse/tune/frozen_mode.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/tune/plan_request.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse {

namespace frozen {

/// A plan for pictures of these sizes, which match the request's extents: with frozen tasks if the request asks for
/// them, or, without a cache, leaves it open and such a plan exists. Without tasks, steps read the cache or ranks
/// encode before each step.
template <any_model Model, class Backend>
[[nodiscard]] tuning plan_at(plan_request request, const pictures_options& options,
                             const std::vector<picture_extents>& sizes) {
    using task = pictures_task<Model, Backend>;
    const bool must = request.frozen == frozen_mode::first || request.frozen == frozen_mode::bubbles;
    if (must && !options.cache.empty()) {
        throw input_error{request.words.frozen + " " + std::string{name_of(request.frozen)} +
                          ": cannot be combined with " + options.words.cache + ", with which steps encode nothing"};
    }
    const bool alike = !request.cluster || request.cluster->unlike.empty();
    std::string why_not = alike ? "" : "; as tasks they need devices that are alike";
    if (options.cache.empty() && request.frozen != frozen_mode::none && (alike || must)) {
        try {
            return plan_for<Model, Backend>(
                request, task::tasks::estimated(*request.device, sizes, normalized_shares(request.extents)));
        } catch (const infeasible_error& e) {
            if (must) { throw; }
            why_not = std::string{"; as tasks: "} + e.what();
        }
    }
    request.frozen = frozen_mode::none;
    if (!options.cache.empty()) { return plan_for<Model, Backend>(std::move(request)); }
    request.kept->beside_first_stage += task::first_stage_bytes(sizes);
    request.kept->beside_last_stage += task::last_stage_bytes(sizes);
    tuning found = plan_for<Model, Backend>(std::move(request));
    found.assumptions.push_back("frozen networks encode before each step, which the step's time does not include" +
                                why_not);
    return found;
}

} // namespace frozen

/// plan_for<Model, Backend>(request) for a pictures_task on pictures with these options, of which it reads only size
/// and cache. Frozen networks are costed at the rates of the request's device. The plan is for the extent of the
/// pictures.
///
/// With a cache no step encodes anything. Otherwise the networks run as the request says: as tasks in the bubbles or
/// before the first pass, or, for frozen_mode::none, on the ranks of the first and the last stage before each step,
/// which the predicted step time leaves out. `tuned` falls back to the latter where no plan has room for tasks; the
/// plan's assumptions say why. Throws input_error on tasks beside a cache, and as plan_for does.
template <any_model Model, class Backend>
[[nodiscard]] tuning plan_for(plan_request request, const pictures_options& options) {
    if (!request.device) { throw input_error{"device: must be given when there are no measured costs"}; }
    if (!request.kept) { request.kept = kept_by<Model, Backend>(false, request.optimizer); }
    if (options.buckets.area != extent{}) {
        throw input_error{options.words.buckets +
                          ": the steps per bucket depend on the pictures: call plan_for with open ones"};
    }
    const frozen::picture_extents sizes =
        frozen::extents_of<Model>(options.size, options.resample_positions, options.words.resample_positions);
    if (request.extent != extent{} && request.extent != sizes.latents) {
        throw input_error{"extent: must be that of the pictures, which " + options.words.size + " determines"};
    }
    if (options.size != extent{}) { request.extent = sizes.latents; }
    return frozen::plan_at<Model, Backend>(std::move(request), options, {sizes});
}

/// The same for a pictures_task on pictures that are open. With buckets the plan covers the extent of each, for the
/// mean step of an epoch; tasks encode for a next step of any bucket. Throws input_error where the request then has no
/// global batch.
template <any_model Model, class Backend>
[[nodiscard]] tuning plan_for(plan_request request, const pictures<Model>& from) {
    const pictures_options& options = from.options();
    if (!from.has_buckets()) { return plan_for<Model, Backend>(std::move(request), options); }
    if (!request.device) { throw input_error{"device: must be given when there are no measured costs"}; }
    if (request.extent != extent{} || !request.extents.empty()) {
        throw input_error{request.words.extents + ": must not be set, because they follow from " +
                          options.words.buckets};
    }
    if (request.global_batch < 1) {
        throw input_error{request.words.global_batch + ": required with " + options.words.buckets +
                          ": it determines the steps of each bucket"};
    }
    if (!request.kept) { request.kept = kept_by<Model, Backend>(false, request.optimizer); }
    request.extents = from.shares(static_cast<std::uint64_t>(request.global_batch));
    return frozen::plan_at<Model, Backend>(std::move(request), options, from.sizes());
}

} // namespace pulse
