#pragma once

#include <pulse/model/extent.hpp>
#include <pulse/plan/rank_grid.hpp>

namespace pulse {

/// How an executor runs a plan.
struct executor_options {
    /// Which ranks of the transport form a pipeline, and which form a stage's replicas.
    rank_layout layout{rank_layout::pipeline_inside};
    /// Summed gradients stay on the replica that keeps their optimizer state: share_of every layer. The rest of a
    /// rank's gradients is then meaningless.
    bool sharded_optimizer{};
    /// Extent of the model's input for which the costs were made; default: that of the model's type.
    pulse::extent extent{};
};

} // namespace pulse
