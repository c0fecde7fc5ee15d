#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include <pulse/plan/instruction.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/simulate/simulation_options.hpp>

namespace pulse {

/// Time (us) of one compute instruction: the sum over the layers of its stage; an unsplit backward is B + W, a
/// recompute is F. A frozen task of `device` is one call of each of its layers.
[[nodiscard]] constexpr double duration_us(const step_model& model, int device, const instruction& what) {
    const auto over = [&](stage_id stage, auto of_layer) {
        double sum = 0;
        for (int l = model.first_layer(index_of(stage)); l <= model.last_layer(index_of(stage)); ++l) {
            sum += of_layer(model.layer(l));
        }
        return sum;
    };
    const auto forward = [](const layer_cost& c) { return c.forward_us; };
    if (const auto* f = std::get_if<op::forward>(&what)) { return over(f->stage, forward); }
    if (const auto* r = std::get_if<op::recompute>(&what)) { return over(r->stage, forward); }
    if (const auto* b = std::get_if<op::backward_input>(&what)) {
        const bool with_weight = b->with_weight;
        return over(b->stage, [with_weight](const layer_cost& c) {
            return c.backward_input_us + (with_weight ? c.backward_weight_us : 0.0);
        });
    }
    if (const auto* w = std::get_if<op::backward_weight>(&what)) {
        return over(w->stage, [](const layer_cost& c) { return c.backward_weight_us; });
    }
    if (const auto* e = std::get_if<op::encode>(&what)) {
        const frozen_task& task = model.frozen().task(model.frozen().first_of(device) + e->task);
        return model.costs().frozen[static_cast<std::size_t>(task.component)].duration_us(
            task.first_layer, task.last_layer, task.samples);
    }
    return 0;
}

/// Time for the replicas of `rank` to exchange shares of `share_bytes` bytes, round after round, on links without other
/// traffic.
[[nodiscard]] constexpr double exchange_us(const simulation_options& world, std::size_t rank, std::int64_t share_bytes,
                                           int replicas) noexcept {
    double sum = 0;
    for (int round = 1; round <= world.round_count(rank, replicas); ++round) {
        sum += world.round(rank, round).message_us(share_bytes);
    }
    return sum;
}

/// How long that exchange occupies the links that the rank's replicas share with others.
[[nodiscard]] constexpr double exchange_occupied_us(const simulation_options& world, std::size_t rank,
                                                    std::int64_t share_bytes, int replicas) noexcept {
    double sum = 0;
    for (int round = 1; round <= world.round_count(rank, replicas) && world.shares_links(rank); ++round) {
        const replica_round& now = world.round(rank, round);
        if (now.shared) { sum += now.message_us(share_bytes) - now.line.latency_us; }
    }
    return sum;
}

/// Bytes of one share, which one replica sends to another: `bytes` / D, rounded up.
[[nodiscard]] constexpr std::int64_t share_bytes_of(std::int64_t bytes, int replicas) noexcept {
    return (bytes + replicas - 1) / replicas;
}

/// Ways that a gradient travels before the optimizer step: shares there and sums back, or only the shares there with
/// sharded optimizer state.
[[nodiscard]] constexpr int gradient_ways(const parameter_memory& kept) noexcept { return kept.sharded ? 1 : 2; }

/// Time to reduce `gradient_bytes` over the replicas of `rank`.
[[nodiscard]] constexpr double reduce_us(const simulation_options& world, std::size_t rank, std::int64_t gradient_bytes,
                                         int replicas) noexcept {
    if (replicas < 2 || gradient_bytes == 0) { return 0; }
    return gradient_ways(world.kept) * exchange_us(world, rank, share_bytes_of(gradient_bytes, replicas), replicas);
}

/// Bytes that each replica sends in that reduction.
[[nodiscard]] constexpr std::int64_t reduce_bytes(std::int64_t gradient_bytes, int replicas,
                                                  const parameter_memory& kept) noexcept {
    return replicas < 2 ? 0 : gradient_ways(kept) * (replicas - 1) * share_bytes_of(gradient_bytes, replicas);
}

/// Bytes of the new weights in one replica's share, which it sends to each other replica after the optimizer step; 0
/// unless state is sharded.
[[nodiscard]] constexpr std::int64_t weight_share_bytes(std::int64_t parameter_bytes, int replicas,
                                                        const parameter_memory& kept) noexcept {
    return replicas < 2 || !kept.sharded ? 0 : share_bytes_of(parameter_bytes, replicas);
}

/// Time of that exchange of new weights.
[[nodiscard]] constexpr double weight_exchange_us(const simulation_options& world, std::size_t rank,
                                                  std::int64_t parameter_bytes, int replicas) noexcept {
    const std::int64_t share = weight_share_bytes(parameter_bytes, replicas, world.kept);
    return share == 0 ? 0.0 : exchange_us(world, rank, share, replicas);
}

/// Time of a rank after its passes and reductions: the optimizer step and the exchange of new weights.
[[nodiscard]] constexpr double update_us(const simulation_options& world, std::size_t rank,
                                         std::int64_t parameter_bytes, int replicas) noexcept {
    return world.optimizer_us_of(rank) + weight_exchange_us(world, rank, parameter_bytes, replicas);
}

} // namespace pulse
