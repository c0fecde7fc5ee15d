#pragma once

#include <cstdint>
#include <variant>

#include <pulse/hardware/link.hpp>
#include <pulse/hardware/ring_all_reduce.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Time of one instruction that computes: the sums of its layers' times; an unsplit backward is B + W; a recompute is F.
[[nodiscard]] constexpr double duration_us(const step_model& model, const instruction& what) noexcept {
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
    return 0;
}

/// Bytes of a stage's parameters.
[[nodiscard]] constexpr std::int64_t parameter_bytes_of(const step_model& model, int stage) noexcept {
    std::int64_t bytes = 0;
    for (int l = model.first_layer(stage); l <= model.last_layer(stage); ++l) {
        bytes += model.layer(l).parameter_bytes;
    }
    return bytes;
}

/// What all `replicas` together send when a stage's gradients are summed: each byte goes to the replica that sums it from all
/// others, and its sum back. Exact, however the bytes are cut into shares.
[[nodiscard]] constexpr std::int64_t all_reduce_bytes(const step_model& model, int stage, int replicas) noexcept {
    return replicas < 2 ? 0 : 2 * (replicas - 1) * parameter_bytes_of(model, stage);
}

/// What each of `replicas` sends when a stage's gradients are summed on a ring: a D-th part of all_reduce_bytes, rounded up to
/// shares of whole bytes.
[[nodiscard]] constexpr std::int64_t reduce_bytes(const step_model& model, int stage, int replicas) noexcept {
    return ring_all_reduce_bytes(parameter_bytes_of(model, stage), replicas);
}

/// How long that takes.
[[nodiscard]] constexpr double reduce_us(const step_model& model, int stage, int replicas, const link& line) noexcept {
    return ring_all_reduce_us(parameter_bytes_of(model, stage), replicas, line);
}

} // namespace pulse
