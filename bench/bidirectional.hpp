#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/cascade_problem.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse::bench {

/// Two pipelines of the same model in opposite directions, half of the microbatches in each.
///
/// `problem` has 2P stages (0 .. P-1 are those of the cut, P .. 2P-1 their copies on the mirrored devices) and M/2
/// microbatches; microbatch k of the first P stages and microbatch k of the others are different ones. No dependency
/// links stage P-1 to stage P, so the problem suits `find_violation` and `peak_holds`, which read dependencies as
/// given, but not schedulers and bounds that expect one chain.
struct bidirectional_problem {
    schedule_problem problem{};
    /// Bytes of parameters, one copy of the values, that each device holds for its two stages.
    std::vector<std::int64_t> parameter_bytes{};
    /// Microseconds to sum the gradients of stage s over its two devices: each sends half to the other and receives
    /// half of the sum.
    std::vector<double> gradient_sum_us{};
    /// Bytes that these sums send in a step.
    std::int64_t gradient_bytes{};
};

/// The problem of two opposite pipelines over a sequential cut of an even number of devices.
///
/// `options` are those of one pipeline with all M microbatches. Throws input_error when M or P is odd or the placement
/// is not sequential, and as `make_problem`.
[[nodiscard]] inline bidirectional_problem make_bidirectional_problem(const cost_table& costs, const partition& cut,
                                                                      const problem_options& options) {
    if (cut.kind != placement::sequential) {
        throw input_error("bidirectional: needs a sequential cut with one stage on each device");
    }
    if (cut.devices % 2 != 0) {
        throw input_error("bidirectional: " + std::to_string(cut.devices) + " devices, but the number must be even");
    }
    if (options.microbatches % 2 != 0) {
        throw input_error("bidirectional: " + std::to_string(options.microbatches) +
                          " microbatches, but the number must be even");
    }
    problem_options half = options;
    half.microbatches = options.microbatches / 2;
    partition mirror = cut;
    for (auto& s : mirror.stages) { s.device = cut.devices - 1 - s.device; }

    bidirectional_problem out{};
    out.problem = make_problem(costs, cut, half);
    const schedule_problem other = make_problem(costs, mirror, half);
    pulse::detail::add_chain(out.problem, other);
    out.parameter_bytes.resize(static_cast<std::size_t>(cut.devices), 0);
    for (const auto& s : cut.stages) {
        std::int64_t bytes = 0;
        for (int l = s.first_layer; l <= s.last_layer; ++l) {
            bytes += costs.layers[static_cast<std::size_t>(l)].parameter_bytes;
        }
        const int there = cut.devices - 1 - s.device;
        for (const int d : {s.device, there}) { out.parameter_bytes[static_cast<std::size_t>(d)] += bytes; }
        const auto at = static_cast<std::size_t>(s.device * cut.devices + there);
        const link way = options.links.empty() ? options.link : options.links[at];
        out.gradient_sum_us.push_back(2 * way.transfer_us((bytes + 1) / 2));
        out.gradient_bytes += 2 * bytes;
    }
    return out;
}

/// End of the step: the last pass, or the last sum of gradients. The sum of a stage begins when both copies have
/// finished their last backward pass; the two stages that a pair of devices shares are summed one after the other.
[[nodiscard]] inline double step_us(const bidirectional_problem& both, const schedule& timed) {
    const std::size_t stages = both.gradient_sum_us.size();
    std::vector<double> ready(stages, 0.0);
    double end = 0;
    for (const auto& passes : timed.devices) {
        for (const auto& p : passes) {
            double& at = ready[static_cast<std::size_t>(p.stage) % stages];
            at = std::max(at, p.end_us);
            end = std::max(end, p.end_us);
        }
    }
    for (std::size_t s = 0; 2 * s < stages; ++s) {
        std::size_t first = s;
        std::size_t second = stages - 1 - s;
        if (ready[second] < ready[first]) { std::swap(first, second); }
        const double summed = ready[first] + both.gradient_sum_us[first];
        end = std::max(end, std::max(summed, ready[second]) + both.gradient_sum_us[second]);
    }
    return end;
}

} // namespace pulse::bench
