#pragma once

#include <cstdint>
#include <span>

namespace pulse {

/// Options of AdamW; `weight_decay` is decoupled: per step a weight loses learning_rate x weight_decay of itself.
struct adamw_constants {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 1e-2;

    [[nodiscard]] constexpr bool operator==(const adamw_constants&) const = default;
};

/// What one step of an update rule is told, the same for every weight.
struct optimizer_update {
    adamw_constants constants{};
    /// Counts from 1; bias corrections are 1 - beta^step.
    std::int64_t step{1};
    /// Every gradient is multiplied by it first: clipping, mean over replicas.
    double gradient_scale{1.0};
    /// average = average_decay average + (1 - average_decay) weight, of the new weight.
    double average_decay{0.999};
    /// Of the noise by which weights are rounded, where they are.
    std::uint64_t seed{};
};

/// How an optimizer changes weights: `rule(update, weights, gradients, first_moment, second_moment, average)`.
///
/// All spans are of one size; `average` may be empty, then none is kept. A weight's new values depend on its own old
/// ones alone and not on where it stands in the spans, so that a model is trained to the same bits however it is cut.
template <class R>
concept optimizer_rule = requires(const R& rule, const optimizer_update& now, std::span<float> values,
                                  std::span<const float> gradients) {
    rule(now, values, gradients, values, values, values);
};

} // namespace pulse
