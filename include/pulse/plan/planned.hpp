#pragma once

#include <pulse/model/extent.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// A plan with what it was made from: all that a trainer has to know of planning.
struct planned {
    pulse::plan plan{};
    /// For microbatches of the plan's size.
    cost_table costs{};
    /// What a rank keeps of each parameter, and whether replicas share the optimizer's state.
    parameter_memory kept{};
    /// Which ranks are neighbours where there are replicas.
    rank_layout layout{rank_layout::pipeline_inside};
    /// Of the model's input; none: that of the model's type.
    pulse::extent extent{};

    [[nodiscard]] constexpr bool operator==(const planned&) const = default;
};

} // namespace pulse
