#include "request.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/hardware/json.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/partition/merge_layers.hpp>
#include <pulse/plan/cuda_memory.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/json.hpp>
#include <pulse/tune/cascade_plan.hpp>
#include <pulse/tune/extent_plans.hpp>
#include <pulse/tune/frozen_mode.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/tune/scaled_costs.hpp>

#include "../glpk_search.hpp"
#include "catalogue.hpp"
#include "folder_model.hpp"

namespace pulse_plan {

namespace {

constexpr int scalar_bytes = 2; // bf16

/// The request, with the command line's option names, its cluster and device.
pulse::plan_request request_of(const arguments& a) {
    pulse::plan_request asked = a.asked;
    asked.search = pulse_examples::glpk_search();
    if (asked.schedule == pulse::schedule_method::ilp && !asked.search) {
        throw pulse::input_error("--schedule ilp: this program was built without GLPK");
    }
    asked.words = {.devices = "--devices",
                   .global_batch = "--global-batch",
                   .cluster = a.cluster.empty() ? "--cluster" : a.cluster,
                   .memory_limit = "--memory-limit",
                   .pipeline_degree = "--pipeline",
                   .data_degree = "--data",
                   .waves = "--waves",
                   .microbatch_size = "--microbatch-size",
                   .microbatches = "--microbatches",
                   .split_backward = "--split-backward",
                   .sharded_optimizer = "--shard-optimizer",
                   .gradient_release = "--gradient-release",
                   .schedule = "--schedule",
                   .frozen = "--frozen",
                   .self_conditioning = "--self-conditioning",
                   .seconds = "--time-limit"};
    if (!a.cluster.empty()) { asked.cluster = pulse::load_cluster(a.cluster); }
    if (!a.profile.empty()) {
        if (asked.optimizer.weights != pulse::weight_form::float32) {
            throw pulse::input_error("--weights: must be fp32 with --profile, whose weights are floats");
        }
        return asked;
    }
    const pulse::device* const on = pulse::find_device(a.device);
    if (on == nullptr) { throw pulse::input_error("--device: '" + a.device + "' is not known"); }
    if (on->tflops_16 == 0) { throw pulse::input_error("--device: no 16-bit rate of " + a.device + " is known"); }
    asked.device = *on;
    asked.kept = pulse::adamw_memory(scalar_bytes, asked.optimizer);
    if (on->runs_cuda && a.torch.empty()) { asked.kept = pulse::on_cuda(*asked.kept); }
    return asked;
}

/// Throws input_error naming the file if it lacks the sizes that factored moments need.
pulse::cost_table profile_of(const std::string& file, const pulse::plan_request& asked) {
    pulse::cost_table costs = pulse::load_profile(file);
    pulse::check_moments(asked.optimizer, costs, file);
    return costs;
}

} // namespace

pulse::tuning plan_of(const arguments& a) {
    pulse::plan_request asked = request_of(a);
    // diffusers' modules cannot be split.
    const auto cut_for = [&](pulse::cost_table costs) {
        return a.torch.empty() ? costs : pulse::merge_parts(std::move(costs));
    };
    if (!a.profile.empty()) { return pulse::plan_for(cut_for(profile_of(a.profile, asked)), asked); }
    const bool of_folder = !a.model_config.empty();
    const backbone_name named =
        of_folder ? split_name("--model-config", a.model_config) : read_backbone_name("--model", a.model);
    std::vector<pulse::extent_share> extents = named.extents;
    if (extents.empty()) { extents.emplace_back(); }
    std::vector<backbone> each;
    for (const pulse::extent_share& one : extents) {
        each.push_back(of_folder ? backbone{graph_of_folder(named, one.extent)} : backbone{named, one.extent});
    }
    if (each.size() > 1) { asked.extents = extents; }
    std::vector<pulse::frozen_component> frozen;
    if (!of_folder) { frozen = frozen_costs_of(named, *asked.device, scalar_bytes); }
    const pulse::extent_cost_source costs_at = [&](int samples, const pulse::extent& to) {
        const auto at = std::ranges::find(extents, to, &pulse::extent_share::extent) - extents.begin();
        const pulse::graph_view graph = each[each.size() > 1 ? static_cast<std::size_t>(at) : 0].graph();
        pulse::cost_table costs = pulse::analytic_costs(graph, *asked.device, samples, scalar_bytes);
        costs.frozen = frozen;
        return cut_for(std::move(costs));
    };
    pulse::tuning found = pulse::plan_for(costs_at, asked);
    if (!of_folder && std::ranges::any_of(extents, [&](const pulse::extent_share& one) {
            return resamples_positions(named.name, one.extent);
        })) {
        found.assumptions.emplace_back("learned positions are resampled (pulse_train --resample-positions)");
    }
    return found;
}

pulse::cascade_tuning cascade_of(const arguments& a) {
    pulse::plan_request asked = request_of(a);
    if (a.profile.empty()) {
        const auto of_one_extent = [](const char* option, const std::string& text) {
            const backbone_name named = read_backbone_name(option, text);
            if (named.extents.size() < 2) { return backbone{named, named.extent()}; }
            throw pulse::input_error(named.option + ": each backbone of a cascade must have one size");
        };
        const backbone one = of_one_extent("--model", a.model);
        const backbone other = of_one_extent("--cascade-with", a.cascade_with);
        const auto costs_of = [&asked](const backbone& what) {
            return [on = *asked.device, &what](int samples) {
                return pulse::analytic_costs(what.graph(), on, samples, scalar_bytes);
            };
        };
        return pulse::plan_cascade_for(costs_of(one), costs_of(other), asked);
    }
    const pulse::cost_table first = profile_of(a.profile, asked);
    const pulse::cost_table second = profile_of(a.cascade_with, asked);
    if (const pulse::device* known = pulse::find_device(first.device.view())) { asked.device = *known; }
    if (!asked.microbatch_size) {
        if (first.microbatch_size != second.microbatch_size) {
            throw pulse::input_error("--cascade-with: its profile has microbatches of " +
                                     std::to_string(second.microbatch_size) + " samples, but that of --profile " +
                                     std::to_string(first.microbatch_size) + "; choose one with --microbatch-size");
        }
        asked.microbatch_size = first.microbatch_size;
    }
    return pulse::plan_cascade_for([&first](int samples) { return pulse::scaled_costs(first, samples); },
                                   [&second](int samples) { return pulse::scaled_costs(second, samples); }, asked);
}

} // namespace pulse_plan
