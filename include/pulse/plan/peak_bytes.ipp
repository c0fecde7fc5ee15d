#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/plan/gradient_places.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

PULSE_CONSTEXPR std::vector<std::int64_t> peak_bytes(const plan& planned, const step_model& model,
                                                     const std::vector<program>& programs,
                                                     const parameter_memory& kept) {
    std::vector<std::int64_t> peaks{};
    const int last = planned.data_degree - 1; // its shares of sharded state are the largest
    for (const program& of_rank : programs) {
        peaks.push_back(lay_out(model, of_rank).total_bytes() +
                        kept_bytes_on(model, of_rank.device, planned.data_degree, last, kept) +
                        further_gradient_bytes(model, kept, {&of_rank}));
    }
    return peaks;
}

PULSE_CONSTEXPR std::vector<std::int64_t> peak_bytes(const plan& planned, const cost_table& costs,
                                                     const parameter_memory& kept) {
    const step_model model{planned, costs};
    return peak_bytes(planned, model, lower(planned, model), kept);
}

PULSE_CONSTEXPR std::vector<std::int64_t> peak_bytes(const planned& made) {
    std::vector<step_bytes> steps(static_cast<std::size_t>(made.plan.pipeline_degree));
    std::vector<std::int64_t> peaks(steps.size());
    std::vector<std::vector<program>> programs{}; // of all extents
    made.each_extent([&](const extent&, const plan& planned, const cost_table& costs, double) {
        const step_model model{planned, costs};
        programs.push_back(lower(planned, model));
        for (const program& of_rank : programs.back()) {
            const auto d = static_cast<std::size_t>(of_rank.device);
            steps[d].grow_to(lay_out(model, of_rank).bytes());
            peaks[d] = std::max(peaks[d], kept_bytes_on(model, of_rank.device, planned.data_degree,
                                                        planned.data_degree - 1, made.kept));
        }
    });
    const step_model model{made.plan, made.costs};
    for (std::size_t d = 0; d != peaks.size(); ++d) {
        std::vector<const program*> of_device{};
        for (const std::vector<program>& all : programs) { of_device.push_back(&all[d]); }
        peaks[d] += steps[d].total() + further_gradient_bytes(model, made.kept, of_device);
    }
    return peaks;
}

namespace detail {

/// A plan's programs and the bytes that each device needs for them (peak_bytes).
struct lowered_plan {
    std::vector<program> programs{};
    std::vector<std::int64_t> peak_bytes{};
};

/// Lowers the plan with as many spare sends as the limits allow, up to the default of `plan`; with none if a limit is
/// exceeded even then. `tight` hints that the limits leave little room: then the search starts at none.
[[nodiscard]] constexpr lowered_plan lower_within(plan& made, const step_model& model, const parameter_memory& kept,
                                                  const memory_limits& limits, bool tight) {
    const int wanted = plan{}.spare_sends;
    const auto lower_with = [&](int spare_sends) {
        lowered_plan lowered{};
        made.spare_sends = spare_sends;
        lowered.programs = lower(made, model);
        lowered.peak_bytes = peak_bytes(made, model, lowered.programs, kept);
        return lowered;
    };
    lowered_plan best = lower_with(tight ? 0 : wanted);
    if (!tight && limits.worst_over(best.peak_bytes) >= 0) { best = lower_with(0); }
    while (made.spare_sends != wanted && limits.worst_over(best.peak_bytes) < 0) {
        lowered_plan more = lower_with(made.spare_sends + 1);
        if (limits.worst_over(more.peak_bytes) >= 0) {
            --made.spare_sends;
            break;
        }
        best = std::move(more);
    }
    return best;
}

} // namespace detail

} // namespace pulse
