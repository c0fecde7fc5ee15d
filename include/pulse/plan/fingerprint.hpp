#pragma once

#include <pulse/core/fingerprint.hpp>
#include <pulse/plan/plan.hpp>

namespace pulse {

/// Fingerprint of what a plan makes ranks do: everything but the times of passes and the prediction.
[[nodiscard]] constexpr fingerprint fingerprint_of(const plan& planned) {
    // Structured bindings fail to compile when a member is added, so none is left out.
    const auto& [model, pipeline_degree, data_degree, node_replicas, microbatches, microbatch_size, split_backward,
                 routing, recompute, gradient_release, spare_sends, cut, order, previews, frozen_tasks, frozen_hosts,
                 further_chains, predicted] = planned;
    static_cast<void>(predicted);
    fingerprint all;
    all.add(model.view()).add(pipeline_degree).add(data_degree).add(microbatches).add(microbatch_size);
    all.add(split_backward).add(static_cast<int>(routing)).add(static_cast<int>(recompute.kind)).add(spare_sends);
    for (const char whole : recompute.stages) { all.add(whole != 0); }
    const auto& [kind, devices, waves, stages] = cut;
    all.add(static_cast<int>(kind)).add(devices).add(waves).add(stages.size());
    for (const auto& [index, device, first, last] : stages) { all.add(index).add(device).add(first).add(last); }
    const auto& [orders] = order;
    all.add(orders.size());
    for (const auto& passes : orders) {
        all.add(passes.size());
        for (const auto& [op, stage, microbatch, start_us, end_us] : passes) {
            all.add(static_cast<int>(op)).add(stage).add(microbatch);
            static_cast<void>(start_us);
            static_cast<void>(end_us);
        }
    }
    for (const int first : further_chains) { all.add(first); }
    if (previews > 0) { all.add(previews); }
    if (gradient_release) { all.add("gradient release"); }
    if (node_replicas > 1) { all.add(node_replicas).add("replicas of a node"); }
    if (frozen_tasks.empty() && frozen_hosts.empty()) { return all; }
    all.add(frozen_tasks.size()).add(frozen_hosts.size());
    for (const auto& tasks : frozen_tasks) {
        all.add(tasks.size());
        for (const auto& [component, first_layer, last_layer, first_sample, samples, device, start_us, end_us] :
             tasks) {
            all.add(component).add(first_layer).add(last_layer).add(first_sample).add(samples).add(device);
            // The start decides between which passes a task runs.
            all.add(start_us);
            static_cast<void>(end_us);
        }
    }
    for (const auto& hosted : frozen_hosts) {
        all.add(hosted.size());
        for (const int component : hosted) { all.add(component); }
    }
    return all;
}

} // namespace pulse
