#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include <pulse/hardware/link.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/tune/rank_grid.hpp>
#include <pulse/tune/step_end.hpp>

namespace pulse {

/// What a step of a candidate is made of, besides its order of passes.
struct candidate_step {
    /// The passes, recomputation included in their durations; memory unlimited.
    schedule_problem problem{};
    /// The same without recomputation: what the critical path is sure to take, as a recomputation may run while its
    /// device would wait.
    schedule_problem plain{};
    std::vector<link> links{}; ///< between the pipeline's devices, P x P
    int replicas{1};
    std::vector<replica_ring> rings{};
    std::vector<gradient_bucket> buckets{};
    std::vector<double> device_optimizer_us{};
};

namespace detail {

/// Times of one microbatch alone along the chain of a plain problem.
struct chain_times {
    std::vector<double> forward_head{};  ///< earliest start of F(s)
    std::vector<double> backward_head{}; ///< of B(s)
    std::vector<double> forward_rest{};  ///< from the start of F(s) to the end of the microbatch
    std::vector<double> backward_rest{};

    constexpr explicit chain_times(const schedule_problem& plain) {
        const std::size_t stages = plain.stages.size();
        std::vector<double> down(stages, 0.0); // lag of F(s) -> F(s+1)
        std::vector<double> up(stages, 0.0);   // lag of B(s+1) -> B(s)
        for (const dependency& d : plain.dependencies) {
            const auto from = static_cast<std::size_t>(d.before.stage);
            const auto to = static_cast<std::size_t>(d.after.stage);
            if (d.after.op == pass::forward && to == from + 1) { down[from] = std::max(down[from], d.lag_us); }
            if (d.after.op == pass::backward_input && from == to + 1) { up[to] = std::max(up[to], d.lag_us); }
        }
        forward_head.assign(stages, 0.0);
        backward_head.assign(stages, 0.0);
        forward_rest.assign(stages, 0.0);
        backward_rest.assign(stages, 0.0);
        for (std::size_t s = 1; s < stages; ++s) {
            forward_head[s] = forward_head[s - 1] + plain.stages[s - 1].forward_us + down[s - 1];
        }
        for (std::size_t s = stages; s-- > 0;) {
            backward_head[s] = s + 1 == stages ? forward_head[s] + plain.stages[s].forward_us
                                               : backward_head[s + 1] + plain.stages[s + 1].backward_input_us + up[s];
        }
        for (std::size_t s = 0; s != stages; ++s) {
            const double after = s == 0 ? 0.0 : up[s - 1] + backward_rest[s - 1];
            backward_rest[s] = plain.stages[s].backward_input_us + std::max(plain.stages[s].backward_weight_us, after);
        }
        for (std::size_t s = stages; s-- > 0;) {
            const double after = s + 1 == stages ? backward_rest[s] : down[s] + forward_rest[s + 1];
            forward_rest[s] = plain.stages[s].forward_us + after;
        }
    }
};

/// Least time of the messages of every directed pair of devices, each with the shortest way to it and after it.
[[nodiscard]] constexpr double link_bound_us(const candidate_step& step, const chain_times& chain) {
    const schedule_problem& plain = step.plain;
    const auto devices = static_cast<std::size_t>(plain.devices);
    const double never = std::numeric_limits<double>::infinity();
    std::vector<double> busy(devices * devices, 0.0);
    std::vector<double> first(devices * devices, never);
    std::vector<double> rest(devices * devices, never);
    for (const dependency& d : plain.dependencies) {
        const auto from = static_cast<std::size_t>(d.before.stage);
        const auto to = static_cast<std::size_t>(d.after.stage);
        const int a = plain.stages[from].device;
        const int b = plain.stages[to].device;
        if (a == b) { continue; }
        const auto at = static_cast<std::size_t>(a * plain.devices + b);
        const bool forward = d.before.op == pass::forward;
        const double latency = step.links[at].latency_us;
        // The latency of one message overlaps with the next.
        busy[at] += std::max(d.lag_us - latency, 0.0);
        const double sent = forward ? chain.forward_head[from] + plain.stages[from].forward_us
                                    : chain.backward_head[from] + plain.stages[from].backward_input_us;
        first[at] = std::min(first[at], sent);
        rest[at] = std::min(rest[at], latency + (forward ? chain.forward_rest[to] : chain.backward_rest[to]));
    }
    double bound = 0;
    for (std::size_t at = 0; at != busy.size(); ++at) {
        if (busy[at] > 0) { bound = std::max(bound, first[at] + plain.microbatches * busy[at] + rest[at]); }
    }
    return bound;
}

} // namespace detail

/// A step time that no order of the candidate's passes can beat, microseconds; `known_us` is any bound of its passes that
/// is known already.
///
/// The maximum of: one microbatch alone; per device, its load between the earliest start of its first pass and what must
/// follow its last, then the reduction of some stage and its optimizer; per directed link, its messages; per group of rings,
/// all reductions after the first one that can begin. What the simulator is told to do takes at least that.
[[nodiscard]] constexpr double step_bound_us(const candidate_step& step, double known_us = 0) {
    const schedule_problem& plain = step.plain;
    const detail::chain_times chain{plain};
    const auto devices = static_cast<std::size_t>(plain.devices);
    const double never = std::numeric_limits<double>::infinity();
    const double times = plain.microbatches;

    double passes_us = std::max({known_us, chain.forward_rest.front(), detail::link_bound_us(step, chain)});
    std::vector<double> head(devices, never);
    std::vector<double> load(devices, 0.0);
    std::vector<double> after(devices, 0.0);
    std::vector<double> stage_end(plain.stages.size(), 0.0);
    for (std::size_t s = plain.stages.size(); s-- > 0;) {
        const auto d = static_cast<std::size_t>(plain.stages[s].device);
        const stage_timing& once = plain.stages[s];
        const stage_timing& all = step.problem.stages[s];
        load[d] += times * (all.forward_us + all.backward_input_us + all.backward_weight_us);
        head[d] = chain.forward_head[s]; // the device's lowest stage is the last one here
        // An unsplit device ends with B of its lowest stage; a split one may end with a W that nothing waits for.
        after[d] = plain.split_backward ? 0.0 : chain.backward_rest[s] - once.backward_input_us;
        stage_end[s] =
            chain.forward_head[s] + times * (once.forward_us + once.backward_input_us + once.backward_weight_us);
    }
    // What the reductions of a stage last beyond its last pass, whatever else its links do.
    std::vector<double> reduced_after(plain.stages.size(), 0.0);
    std::vector<double> group_first(devices, never);
    std::vector<double> group_work(devices, 0.0);
    std::vector<double> group_after(devices, never);
    for (const gradient_bucket& b : step.buckets) {
        const auto d = static_cast<std::size_t>(b.device);
        const auto group = static_cast<std::size_t>(step.rings[d].group);
        const double work = ring_all_reduce_us(b.bytes, step.replicas, step.rings[d].line);
        double& beyond = reduced_after[static_cast<std::size_t>(b.stage)];
        beyond = std::max(beyond, work - b.before_end_us);
        group_first[group] =
            std::min(group_first[group], std::max(0.0, stage_end[static_cast<std::size_t>(b.stage)] - b.before_end_us));
        group_work[group] += work;
        group_after[group] = std::min(group_after[group], step.device_optimizer_us[d]);
    }
    // Some stage of a device has the device's last pass; one without gradients reduces nothing.
    std::vector<double> least_reduction(devices, never);
    for (std::size_t s = 0; s != plain.stages.size(); ++s) {
        double& least = least_reduction[static_cast<std::size_t>(plain.stages[s].device)];
        least = std::min(least, reduced_after[s]);
    }
    double bound = passes_us;
    for (std::size_t d = 0; d != devices; ++d) {
        if (head[d] == never) { continue; }
        const double own_end = head[d] + load[d];
        const double reduced = step.replicas > 1 ? least_reduction[d] : 0.0;
        bound = std::max({bound, own_end + after[d], own_end + reduced + step.device_optimizer_us[d]});
        if (step.replicas > 1 && group_work[d] > 0) {
            bound = std::max(bound, group_first[d] + group_work[d] + group_after[d]);
        }
    }
    return bound;
}

} // namespace pulse
