#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/tune/step_end.hpp>

namespace pulse_bench {

/// How long the parameters of a unit stay gathered.
enum class gathered : std::uint8_t {
    pass,       ///< for one pass (reshard_after_forward)
    microbatch, ///< from its forward pass to its backward pass
    step,       ///< over all microbatches of the step
};

/// Which microbatches end with a reduction; gradients of the others are accumulated on their device.
enum class reduced : std::uint8_t {
    every,
    inside, ///< each is scattered over its node, only the last is summed over nodes
    last,   ///< no_sync
};

/// What a user of fully sharded data parallelism (FSDP2) may choose.
struct sharding {
    /// Whether the devices of a node shard the state and every node has all of it; otherwise all devices shard it.
    bool hybrid{};
    int microbatch_size{1};
    int microbatches{1};
    gathered keeps{gathered::pass};
    reduced when{reduced::every};
    /// Every layer keeps only its input and runs forward again before its backward pass.
    bool recompute{};
    /// How many passes before its own a unit is gathered.
    int ahead{1};
};

/// Bytes kept for each parameter, and the memory rate of the optimizer.
struct sharded_state {
    pulse::parameter_memory kept{.scalar_bytes = 2, .gradient_bytes = 2, .state_bytes = 12};
    double memory_gb_per_s{};
};

/// The step of every device, in microseconds; bytes of one device.
struct sharded_step {
    double step_us{};
    double compute_us{}; ///< passes and optimizer
    double inside_us{};  ///< gathers and scatters, one after the other
    double across_us{};  ///< sums over nodes
    std::int64_t sent_bytes{};
    std::int64_t peak_bytes{};
};

namespace detail {

/// Layers that are gathered together: one with parameters and those without that follow it.
struct sharded_unit {
    double forward_us{};
    double backward_us{};
    std::int64_t bytes{};
};

[[nodiscard]] inline std::vector<sharded_unit> units_of(const pulse::cost_table& costs, bool recompute) {
    std::vector<sharded_unit> units{};
    for (const pulse::layer_cost& l : costs.layers) {
        if (units.empty() || (l.parameter_bytes > 0 && units.back().bytes > 0)) { units.push_back({}); }
        sharded_unit& last = units.back();
        last.forward_us += l.forward_us;
        last.backward_us += l.backward_input_us + l.backward_weight_us + (recompute ? l.forward_us : 0.0);
        last.bytes += l.parameter_bytes;
    }
    return units;
}

/// The most bytes of any `count` consecutive units.
[[nodiscard]] inline std::int64_t most_bytes(const std::vector<sharded_unit>& units, int count) {
    std::int64_t most = 0;
    for (std::size_t first = 0; first != units.size(); ++first) {
        std::int64_t sum = 0;
        for (std::size_t u = first; u != std::min(units.size(), first + static_cast<std::size_t>(count)); ++u) {
            sum += units[u].bytes;
        }
        most = std::max(most, sum);
    }
    return most;
}

/// The most bytes that one microbatch holds while the backward pass walks down the layers and frees what it has read.
[[nodiscard]] inline std::int64_t activation_bytes(const pulse::cost_table& costs, bool recompute) {
    std::int64_t kept = costs.input_bytes + 2 * costs.conditioning_bytes;
    std::int64_t most = 0;
    for (std::size_t l = 0; l != costs.layers.size(); ++l) {
        const pulse::layer_cost& layer = costs.layers[l];
        kept += layer.output_bytes + (recompute ? 0 : layer.saved_bytes);
        std::int64_t now = kept + (recompute ? layer.saved_bytes : 0) + layer.deferred_bytes + layer.workspace_bytes;
        now += layer.output_bytes + (l == 0 ? 0 : costs.layers[l - 1].output_bytes); // their gradients
        for (const pulse::skip_cost& s : costs.skips) {
            if (s.from < static_cast<int>(l) && static_cast<int>(l) <= s.to) { now += s.bytes; } // likewise
        }
        most = std::max(most, now);
    }
    return most;
}

[[nodiscard]] constexpr std::int64_t share_of(std::int64_t bytes, int devices) noexcept {
    return (bytes + devices - 1) / devices;
}

/// The rings of one sharding on a cluster.
struct sharded_rings {
    pulse::cluster where{};
    int group{};    ///< devices that share the state
    int replicas{}; ///< groups

    sharded_rings(const pulse::cluster& machine, bool hybrid) :
        where{machine}, group{hybrid ? machine.devices_per_node : machine.devices()}, replicas{hybrid ? machine.nodes
                                                                                                      : 1} {}

    /// A ring passes through a node once, so it does not share the node's link; it is as slow as its slowest hop.
    [[nodiscard]] double hop_us(std::int64_t bytes) const {
        double hop = where.devices_per_node > 1 ? where.intra_node.transfer_us(bytes) : 0.0;
        if (group > where.devices_per_node) { hop = std::max(hop, where.inter_node.transfer_us(bytes)); }
        return hop;
    }
    [[nodiscard]] double gather_us(std::int64_t bytes) const {
        return bytes == 0 ? 0.0 : (group - 1) * hop_us(share_of(bytes, group));
    }
    /// Every device of a node has its own ring over the nodes; these rings share the link of the node.
    [[nodiscard]] double across_us(std::int64_t bytes) const {
        if (bytes == 0 || replicas == 1) { return 0; }
        const std::int64_t message = share_of(share_of(bytes, group), replicas);
        return 2.0 * (replicas - 1) * where.inter_node.transfer_us(message * group);
    }
    [[nodiscard]] std::int64_t gather_bytes(std::int64_t bytes) const { return (group - 1) * share_of(bytes, group); }
    [[nodiscard]] std::int64_t across_bytes(std::int64_t bytes) const {
        return 2 * (replicas - 1) * share_of(share_of(bytes, group), replicas);
    }
};

} // namespace detail

/// A step of fully sharded data parallelism with one unit per layer, on a clock with three in-order queues: passes,
/// gathers and scatters, and sums over nodes, which have their own links.
///
/// A unit is gathered when the pass `ahead` passes before its own begins; its gradients are scattered when its backward
/// pass ends, and its node's share of them is then summed over nodes. A backward pass waits until the gradients of the
/// last but one are scattered, since memory is counted for two units of them. Copies into and out of the collectives'
/// buffers take no time here, which favours the method.
[[nodiscard]] inline sharded_step step_of(const pulse::cost_table& costs, const pulse::cluster& machine,
                                          const sharded_state& state, const sharding& how) {
    const std::vector<detail::sharded_unit> units = detail::units_of(costs, how.recompute);
    const detail::sharded_rings rings{machine, how.hybrid};
    const std::size_t count = units.size();
    const std::size_t visits = 2 * count * static_cast<std::size_t>(how.microbatches);
    const auto unit_at = [&](std::size_t visit) {
        const std::size_t in = visit % (2 * count);
        return in < count ? in : 2 * count - 1 - in;
    };
    sharded_step made{};
    std::vector<double> gathered_us(visits, 0.0);
    double inside_free = 0;
    double across_free = 0;
    const auto gather = [&](std::size_t visit, double ready) {
        if (visit >= visits) { return; }
        const std::size_t in = visit % (2 * count);
        const std::size_t u = unit_at(visit);
        // The unit of the previous pass is still there.
        const bool here = (visit > 0 && unit_at(visit - 1) == u) || (how.keeps != gathered::pass && in >= count) ||
                          (how.keeps == gathered::step && visit >= count);
        if (here || rings.group == 1) { return; }
        const double us = rings.gather_us(units[u].bytes);
        gathered_us[visit] = inside_free = std::max(inside_free, ready) + us;
        made.inside_us += us;
        made.sent_bytes += rings.gather_bytes(units[u].bytes);
    };
    const auto ahead = static_cast<std::size_t>(how.ahead);
    for (std::size_t visit = 0; visit != ahead; ++visit) { gather(visit, 0); }
    double now = 0;
    double scattered = 0;        // end of the scatter of the previous backward pass
    double scattered_before = 0; // the one before that
    for (std::size_t visit = 0; visit != visits; ++visit) {
        const bool backward = visit % (2 * count) >= count;
        const std::size_t u = unit_at(visit);
        now = std::max({now, gathered_us[visit], backward ? scattered_before : 0.0});
        gather(visit + ahead, now);
        const double busy = backward ? units[u].backward_us : units[u].forward_us;
        now += busy;
        made.compute_us += busy;
        const bool last = visit / (2 * count) + 1 == static_cast<std::size_t>(how.microbatches);
        if (!backward || (how.when == reduced::last && !last)) { continue; }
        scattered_before = scattered;
        const double us = rings.gather_us(units[u].bytes);
        if (rings.group > 1) {
            scattered = inside_free = std::max(inside_free, now) + us;
            made.inside_us += us;
            made.sent_bytes += rings.gather_bytes(units[u].bytes);
        }
        if (rings.replicas == 1 || (how.when == reduced::inside && !last)) { continue; }
        const double sum = rings.across_us(units[u].bytes);
        across_free = std::max({across_free, now, scattered}) + sum;
        made.across_us += sum;
        made.sent_bytes += rings.across_bytes(units[u].bytes);
    }
    std::int64_t bytes = 0;
    for (const detail::sharded_unit& u : units) { bytes += u.bytes; }
    const double optimizer =
        pulse::optimizer_us(detail::share_of(bytes, rings.group), state.kept, state.memory_gb_per_s);
    made.compute_us += optimizer;
    made.step_us = std::max({now, inside_free, across_free}) + optimizer;

    const std::int64_t parameters = pulse::elements_of(detail::share_of(bytes, rings.group), state.kept);
    made.peak_bytes = parameters * state.kept.total_bytes() + detail::activation_bytes(costs, how.recompute);
    if (rings.group > 1) {
        made.peak_bytes += how.keeps == gathered::pass ? detail::most_bytes(units, how.ahead + 1) : bytes;
        const bool adds_up = how.when == reduced::last && how.microbatches > 1;
        made.peak_bytes += adds_up ? bytes : detail::most_bytes(units, 2);
    }
    return made;
}

/// The fastest sharding that fits.
struct best_sharding {
    sharding how{};
    sharded_step step{};
};

/// Whether this is stage 1, 2 or 3 of ZeRO: 1 shards the optimizer's state, 2 also the sums of gradients, 3 also the
/// parameters, which are gathered for each pass or microbatch.
[[nodiscard]] constexpr bool is_of_stage(const sharding& how, int stage) noexcept {
    if (stage == 3) { return how.keeps != gathered::step; }
    return how.keeps == gathered::step && (how.when == reduced::last) == (stage == 1);
}

/// The best over all fields of `sharding` except `hybrid`, or over those of a stage of ZeRO, with microbatch sizes that
/// are powers of two; none if nothing fits or the devices do not divide the batch. `costs_of(size)` gives the costs of
/// a microbatch of that size.
template <class CostsOf>
[[nodiscard]] std::optional<best_sharding> tune_sharding(CostsOf costs_of, const pulse::cluster& machine,
                                                         const sharded_state& state, int global_batch, bool hybrid,
                                                         std::optional<int> stage = {}) {
    std::optional<best_sharding> best{};
    if (global_batch % machine.devices() != 0) { return best; }
    const int local = global_batch / machine.devices();
    for (int size = 1; size <= local; size *= 2) {
        if (local % size != 0) { break; }
        const pulse::cost_table costs = costs_of(size);
        sharding how{.hybrid = hybrid, .microbatch_size = size, .microbatches = local / size};
        for (const gathered keeps : {gathered::pass, gathered::microbatch, gathered::step}) {
            for (const reduced when : {reduced::every, reduced::inside, reduced::last}) {
                for (const bool recompute : {false, true}) {
                    for (const int ahead : {1, 2}) {
                        how.keeps = keeps;
                        how.when = when;
                        how.recompute = recompute;
                        how.ahead = ahead;
                        if (stage && !is_of_stage(how, *stage)) { continue; }
                        const sharded_step step = step_of(costs, machine, state, how);
                        const bool fits = machine.memory_bytes == 0 || step.peak_bytes <= machine.memory_bytes;
                        if (fits && (!best || step.step_us < best->step.step_us)) { best = {how, step}; }
                    }
                }
            }
        }
    }
    return best;
}

/// A sharding in a few words.
[[nodiscard]] inline std::string to_text(const sharding& s) {
    std::string text = std::to_string(s.microbatches) + " x " + std::to_string(s.microbatch_size) + " samples, ";
    switch (s.keeps) {
    case gathered::pass: text += "gathered twice"; break;
    case gathered::microbatch: text += s.microbatches > 1 ? "gathered once a microbatch" : "gathered once"; break;
    case gathered::step: text += "gathered once"; break;
    }
    if (s.microbatches > 1 && s.when == reduced::inside) { text += ", summed over nodes once"; }
    if (s.microbatches > 1 && s.when == reduced::last) { text += ", reduced once"; }
    if (s.recompute) { text += ", recompute blocks"; }
    if (s.ahead > 1) { text += ", " + std::to_string(s.ahead) + " units ahead"; }
    return text;
}

} // namespace pulse_bench
