#include "request.hpp"

#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/hardware/json.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/json.hpp>
#include <pulse/tune/plan_for.hpp>

#include "../glpk_search.hpp"
#include "catalogue.hpp"

namespace pulse_plan {

pulse::tuning plan_of(const arguments& a) {
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
                   .schedule = "--schedule",
                   .frozen = "--frozen",
                   .self_conditioning = "--self-conditioning",
                   .seconds = "--time-limit"};
    if (!a.cluster.empty()) { asked.cluster = pulse::load_cluster(a.cluster); }
    if (!a.profile.empty()) { return pulse::plan_for(pulse::load_profile(a.profile), asked); }

    constexpr int scalar_bytes = 2; // bf16
    const pulse::device* const on = pulse::find_device(a.device);
    if (on == nullptr) { throw pulse::input_error("--device: '" + a.device + "' is not known"); }
    if (on->tflops_16 == 0) { throw pulse::input_error("--device: no 16-bit rate of " + a.device + " is known"); }
    asked.device = *on;
    asked.kept = pulse::adamw_memory(scalar_bytes);
    const pulse::graph_view graph = backbone_of(a.model);
    const std::vector<pulse::frozen_component> frozen = frozen_costs_of(a.model, *on, scalar_bytes);
    return pulse::plan_for(
        [&](int samples) {
            pulse::cost_table costs = pulse::analytic_costs(graph, *on, samples, scalar_bytes);
            costs.frozen = frozen;
            return costs;
        },
        asked);
}

} // namespace pulse_plan
