#pragma once

#include <pulse/model/extent.hpp>
#include <pulse/plan/rank_grid.hpp>

namespace pulse {

/// How an executor runs a plan.
struct executor_options {
    /// Which ranks of the transport form a pipeline, and which a stage's replicas.
    rank_layout layout{rank_layout::pipeline_inside};
    /// Summed gradients are left where the replica keeps optimizer state: share_of every layer. The rest of a rank's
    /// gradients is then of no use.
    bool sharded_optimizer{};
    /// Of the model's input, for which the costs are; none: that of the model's type.
    pulse::extent extent{};
};

} // namespace pulse
