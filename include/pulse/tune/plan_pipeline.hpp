#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/validate.hpp>

namespace pulse {

/// A pipeline whose degrees are decided: what is left is where to cut and in which order to run.
struct pipeline_options {
    placement kind{placement::folded};
    int devices{1};
    /// Folded: waves; interleaved: chunks on a device; sequential: 1.
    int waves{1};
    int microbatches{1};
    bool split_backward{true};
    skip_routing routing{skip_routing::direct};
    recomputation recompute{recomputation::none};
    schedule_method method{schedule_method::list};
    pulse::link link{};
    /// How much longer than the least load a device may work for fewer bytes; an interleaved cut is the one without.
    double slack{};
    /// Copies of the parameters that a device keeps: values, gradients, AdamW's two moments, an average.
    int parameter_copies{5};
    /// Per device; 0 is unlimited. Parameters and their copies count.
    std::int64_t memory_limit_bytes{};
};

/// Bytes of parameters, all copies, on `device`.
[[nodiscard]] constexpr std::int64_t parameter_bytes_on(const partition& cut, const cost_table& costs, int device,
                                                        int copies) {
    std::int64_t sum = 0;
    for (const stage& s : cut.stages) {
        if (s.device != device) { continue; }
        for (int l = s.first_layer; l <= s.last_layer; ++l) {
            sum += costs.layers[static_cast<std::size_t>(l)].parameter_bytes;
        }
    }
    return sum * copies;
}

namespace detail {

/// The plan of a cut before its passes are ordered, with the bytes of a step predicted. `choices` are pipeline_options
/// or a tune_candidate; the microbatch size is that of the costs.
template <class Choices>
[[nodiscard]] constexpr plan unordered_plan(const cost_table& costs, partition cut, const Choices& choices) {
    plan made{};
    made.model = costs.model;
    made.pipeline_degree = cut.devices;
    made.microbatches = choices.microbatches;
    made.microbatch_size = costs.microbatch_size;
    made.split_backward = choices.split_backward;
    made.routing = choices.routing;
    made.recompute = choices.recompute;
    const traffic moved = traffic_of(cut, costs, choices.routing);
    made.predicted.boundary_bytes = moved.boundary() * choices.microbatches;
    made.predicted.skip_bytes = moved.skip() * choices.microbatches;
    made.cut = std::move(cut);
    return made;
}

/// Predicts how long the step of an ordered plan takes, and the samples per second of all its replicas.
constexpr void predict_step(plan& made, double step_us, double bubble_ratio) {
    const double samples = 1.0 * made.microbatches * made.microbatch_size * made.data_degree;
    made.predicted.step_us = step_us;
    made.predicted.bubble_ratio = bubble_ratio;
    made.predicted.samples_per_s = step_us > 0 ? 1e6 * samples / step_us : 0.0;
}

} // namespace detail

/// Bytes that each device takes for a plan, on the replica that takes most: its step's memory, its parameters with all
/// that is kept of them, and room for gradients of other replicas.
[[nodiscard]] PULSE_CONSTEXPR std::vector<std::int64_t> peak_bytes(const plan& planned, const step_model& model,
                                                                   const std::vector<program>& programs,
                                                                   const parameter_memory& kept);

[[nodiscard]] PULSE_CONSTEXPR std::vector<std::int64_t> peak_bytes(const plan& planned, const cost_table& costs,
                                                                   const parameter_memory& kept);

/// Cuts, schedules and predicts: the whole way from costs to a plan for given degrees.
///
/// A memory limit is judged by the exact layout of the plan, whose spare sends are fewer where it binds. The scheduler
/// is asked without it first; where that needs too much, methods that can adapt are given what a device has left, and
/// where the layout of the answer still needs more (alignment, transfers under way, scratch), the excess is subtracted
/// and they are asked again. The bound is of the passes without the limit, whose holds count more than the layout.
/// Throws infeasible_error when no cut keeps every skip on one device or the limit cannot be met, and input_error for
/// options that make no sense, a schedule method that is not defined for the placement, waves or split among them.
[[nodiscard]] PULSE_CONSTEXPR plan plan_pipeline(const cost_table& costs, const pipeline_options& options);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/plan_pipeline.ipp> // IWYU pragma: keep
#endif
