#pragma once

#include <cstddef>
#include <vector>

#include <pulse/model/extent.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// The plan for one of a run's several extents. Cut, degrees and microbatches are the same for all.
struct extent_plan {
    pulse::extent extent{};
    /// Fraction of the run's steps that have this extent; shares add up to 1.
    double share{1};
    pulse::plan plan{};

    [[nodiscard]] constexpr bool operator==(const extent_plan&) const = default;
};

/// An extent's plan with the costs that it was made from.
struct planned_extent : extent_plan {
    cost_table costs{};

    [[nodiscard]] constexpr bool operator==(const planned_extent&) const = default;
};

/// A plan with what it was made from: all that a trainer needs to know of planning.
struct planned {
    pulse::plan plan{};
    /// For microbatches of the plan's size.
    cost_table costs{};
    /// What a rank keeps for each parameter, and whether replicas shard the optimizer's state.
    parameter_memory kept{};
    /// How ranks are numbered if there are replicas.
    rank_layout layout{rank_layout::pipeline_inside};
    /// Extent of the model's input; empty: that of the model's type.
    pulse::extent extent{};
    /// The plans for the other extents of a run that has several; `extent` is the first.
    std::vector<planned_extent> others{};
    /// Fraction of the run's steps that have `extent`.
    double share{1};

    /// Calls visit(extent, plan, costs, share) for each extent.
    template <class Visit>
    constexpr void each_extent(Visit&& visit) const {
        visit(extent, plan, costs, share);
        for (const planned_extent& other : others) { visit(other.extent, other.plan, other.costs, other.share); }
    }
    [[nodiscard]] constexpr std::size_t extents() const noexcept { return 1 + others.size(); }
    /// Predicted step time, us, averaged over the extents by share.
    [[nodiscard]] constexpr double mean_step_us() const {
        double mean = 0;
        each_extent([&](const pulse::extent&, const pulse::plan& made, const cost_table&, double part) {
            mean += part * made.predicted.step_us;
        });
        return mean;
    }
    /// The plans as a file holds them (parse_plans): a single plan has no extent, since it serves any.
    [[nodiscard]] constexpr std::vector<extent_plan> plans() const {
        std::vector<extent_plan> all{};
        each_extent([&](const pulse::extent& to, const pulse::plan& made, const cost_table&, double part) {
            all.push_back(others.empty() ? extent_plan{{}, 1, made} : extent_plan{to, part, made});
        });
        return all;
    }

    [[nodiscard]] constexpr bool operator==(const planned&) const = default;
};

} // namespace pulse
