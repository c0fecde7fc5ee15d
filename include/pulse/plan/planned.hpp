#pragma once

#include <cstddef>
#include <vector>

#include <pulse/model/extent.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// The plan of one of several extents that a run's steps have. Cut, degrees and microbatches are those of all.
struct extent_plan {
    pulse::extent extent{};
    /// Of the run's steps, those of this extent; shares add up to 1.
    double share{1};
    pulse::plan plan{};

    [[nodiscard]] constexpr bool operator==(const extent_plan&) const = default;
};

/// The same with the costs that it was made from.
struct planned_extent : extent_plan {
    cost_table costs{};

    [[nodiscard]] constexpr bool operator==(const planned_extent&) const = default;
};

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
    /// Where a run has steps of several extents: of those beside `extent`, which is the first.
    std::vector<planned_extent> others{};
    /// Of the run's steps, those of `extent`.
    double share{1};

    /// All of them, calling visit(extent, plan, costs, share) for each.
    template <class Visit>
    constexpr void each_extent(Visit&& visit) const {
        visit(extent, plan, costs, share);
        for (const planned_extent& other : others) { visit(other.extent, other.plan, other.costs, other.share); }
    }
    [[nodiscard]] constexpr std::size_t extents() const noexcept { return 1 + others.size(); }
    /// By share.
    [[nodiscard]] constexpr double mean_step_us() const {
        double mean = 0;
        each_extent([&](const pulse::extent&, const pulse::plan& made, const cost_table&, double part) {
            mean += part * made.predicted.step_us;
        });
        return mean;
    }
    /// As files have plans (parse_plans): that of one extent is for any.
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
