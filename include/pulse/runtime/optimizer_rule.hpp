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

/// The inputs of one step of an update rule that all weights share.
struct optimizer_update {
    adamw_constants constants{};
    /// Counts from 1; bias corrections are 1 - beta^step.
    std::int64_t step{1};
    /// Every gradient is multiplied by this first: clipping factor / loss scale.
    double gradient_scale{1.0};
    /// average = average_decay average + (1 - average_decay) weight, of the new weight.
    double average_decay{0.999};
    /// Seed of the noise with which weights are rounded, if they are.
    std::uint64_t seed{};
};

/// How an optimizer changes weights: `rule(update, weights, gradients, first_moment, second_moment, average)`.
///
/// All spans have one size; `average` may be empty, then none is kept. A weight's new values depend only on its own old
/// ones, not on its position in the spans, so that training gives the same bits however the model is cut.
template <class R>
concept optimizer_rule = requires(const R& rule, const optimizer_update& now, std::span<float> values,
                                  std::span<const float> gradients) {
    rule(now, values, gradients, values, values, values);
};

} // namespace pulse
