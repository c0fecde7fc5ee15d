#pragma once

#include <pulse/core/fingerprint.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// Stands for what a plan makes ranks do: all of it but the times of passes and what the planner expects.
[[nodiscard]] constexpr fingerprint fingerprint_of(const plan& planned) {
    fingerprint all;
    all.add(planned.model.view()).add(planned.pipeline_degree).add(planned.data_degree).add(planned.microbatches);
    all.add(planned.microbatch_size).add(planned.split_backward).add(static_cast<int>(planned.routing));
    all.add(static_cast<int>(planned.recompute)).add(planned.spare_sends);
    all.add(static_cast<int>(planned.cut.kind)).add(planned.cut.devices).add(planned.cut.waves);
    all.add(planned.cut.stages.size());
    for (const stage& s : planned.cut.stages) { all.add(s.index).add(s.device).add(s.first_layer).add(s.last_layer); }
    all.add(planned.order.devices.size());
    for (const auto& passes : planned.order.devices) {
        all.add(passes.size());
        for (const timed_pass& p : passes) { all.add(static_cast<int>(p.op)).add(p.stage).add(p.microbatch); }
    }
    return all;
}

} // namespace pulse
