#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/simulate/duration.hpp>
#include <pulse/simulate/simulation_options.hpp>
#include <pulse/tune/candidate_bound.hpp>
#include <pulse/tune/step_end.hpp>

namespace pulse {

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

/// Work that a link, which carries one message at a time, must do in a step: it is busy for `busy_us`, starts at
/// `first_us` at the earliest, and `rest_us` follow.
struct link_work {
    double first_us{std::numeric_limits<double>::infinity()};
    double busy_us{};
    double rest_us{std::numeric_limits<double>::infinity()};

    constexpr void add(double first, double busy, double rest) noexcept {
        first_us = std::min(first_us, first);
        busy_us += busy;
        rest_us = std::min(rest_us, rest);
    }
    [[nodiscard]] constexpr double bound_us() const noexcept {
        return busy_us > 0 ? first_us + busy_us + rest_us : 0.0;
    }
};

/// The work of a candidate's links: of every directed pair of devices, and of links that several pairs and exchanges
/// between replicas share; with the shortest path to and from each message.
class links_work {
public:
    constexpr links_work(const candidate_step& step, const chain_times& chain) {
        const schedule_problem& plain = step.plain;
        const auto devices = static_cast<std::size_t>(plain.devices);
        pairs_.resize(devices * devices, link_work{});
        for (const dependency& d : plain.dependencies) {
            const auto from = static_cast<std::size_t>(d.before.stage);
            const auto to = static_cast<std::size_t>(d.after.stage);
            const int a = plain.stages[from].device;
            const int b = plain.stages[to].device;
            if (a == b) { continue; }
            const auto at = static_cast<std::size_t>(a * plain.devices + b);
            const bool forward = d.before.op == pass::forward;
            const double latency = step.world.links[at].latency_us;
            // The latency of one message overlaps with the next.
            const double busy = plain.microbatches * std::max(d.lag_us - latency, 0.0);
            const double sent = forward ? chain.forward_head[from] + plain.stages[from].forward_us
                                        : chain.backward_head[from] + plain.stages[from].backward_input_us;
            const double rest = latency + (forward ? chain.forward_rest[to] : chain.backward_rest[to]);
            pairs_[at].add(sent, busy, rest);
            if (!step.world.routes.empty()) { add(step.world.routes[at], sent, busy, rest); }
        }
    }
    /// An exchange between the replicas of `rank`, at `first` at the earliest, with `rest` after it.
    constexpr void add_exchange(const simulation_options& world, std::size_t rank, double first, double busy,
                                double rest) {
        add(world.replica_route(rank), first, busy, rest);
    }
    [[nodiscard]] constexpr double bound_us() const noexcept {
        double bound = 0;
        for (const auto* all : {&pairs_, &shared_}) {
            for (const link_work& one : *all) { bound = std::max(bound, one.bound_us()); }
        }
        return bound;
    }

private:
    std::vector<link_work> pairs_{};
    std::vector<link_work> shared_{};

    constexpr void add(const link_route& route, double first, double busy, double rest) {
        if (!(busy > 0)) { return; }
        for_each_link(route, [&](std::size_t number) {
            if (shared_.size() <= number) { shared_.resize(number + 1, link_work{}); }
            shared_[number].add(first, busy, rest);
        });
    }
};

} // namespace detail

PULSE_CONSTEXPR double step_bound_us(const candidate_step& step, double known_us) {
    const schedule_problem& plain = step.plain;
    const simulation_options& world = step.world;
    const detail::chain_times chain{plain};
    const auto devices = static_cast<std::size_t>(plain.devices);
    const double never = std::numeric_limits<double>::infinity();
    const double times = plain.microbatches;

    std::vector<double> head(devices, never);
    std::vector<double> load(devices, 0.0);
    std::vector<double> after(devices, 0.0);
    std::vector<double> stage_end(plain.stages.size(), 0.0);
    for (std::size_t s = plain.stages.size(); s-- > 0;) {
        const auto d = static_cast<std::size_t>(plain.stages[s].device);
        const stage_timing& once = plain.stages[s];
        const stage_timing& all = step.problem.stages[s];
        load[d] += times * (all.forward_us + all.backward_input_us + all.backward_weight_us) +
                   plain.previews * once.preview_us;
        head[d] = chain.forward_head[s]; // the device's lowest stage is the last one here
        // An unsplit device ends with B of its lowest stage; a split one may end with a W that nothing waits for.
        after[d] = plain.split_backward ? 0.0 : chain.backward_rest[s] - once.backward_input_us;
        stage_end[s] =
            chain.forward_head[s] + times * (once.forward_us + once.backward_input_us + once.backward_weight_us);
    }
    detail::links_work links{step, chain};
    // What must follow the reductions of a device.
    std::vector<double> ending(devices, 0.0);
    for (std::size_t d = 0; d != devices && step.replicas > 1; ++d) {
        ending[d] = update_us(world, d, step.parameter_bytes[d], step.replicas);
    }
    // How far the reductions of a stage extend beyond its last pass, whatever else its links do.
    std::vector<double> reduced_after(plain.stages.size(), 0.0);
    std::vector<detail::link_work> reductions(devices, detail::link_work{});
    for (const gradient_bucket& b : step.buckets) {
        const auto d = static_cast<std::size_t>(b.device);
        const std::int64_t bytes = gradient_bytes_of(b.bytes, world.kept);
        const double work = reduce_us(world, d, bytes, step.replicas);
        const double first = std::max(0.0, stage_end[static_cast<std::size_t>(b.stage)] - b.before_end_us);
        double& beyond = reduced_after[static_cast<std::size_t>(b.stage)];
        beyond = std::max(beyond, work - b.before_end_us);
        reductions[d].add(first, work, ending[d]);
        if (step.replicas < 2) { continue; }
        const double busy = gradient_ways(world.kept) *
                            exchange_occupied_us(world, d, share_bytes_of(bytes, step.replicas), step.replicas);
        links.add_exchange(world, d, first, busy, ending[d]);
    }
    // Some stage of a device runs the device's last pass; a stage without gradients reduces nothing.
    std::vector<double> least_reduction(devices, never);
    for (std::size_t s = 0; s != plain.stages.size(); ++s) {
        double& least = least_reduction[static_cast<std::size_t>(plain.stages[s].device)];
        least = std::min(least, reduced_after[s]);
    }
    double bound = std::max({known_us, chain.forward_rest.front(), links.bound_us()});
    for (std::size_t d = 0; d != devices; ++d) {
        if (head[d] == never) { continue; }
        const double own_end = head[d] + load[d];
        const double reduced = step.replicas > 1 ? least_reduction[d] + ending[d] : world.optimizer_us_of(d);
        bound = std::max({bound, own_end + after[d], own_end + reduced, reductions[d].bound_us()});
    }
    return bound;
}

} // namespace pulse
