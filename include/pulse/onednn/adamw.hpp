#pragma once

#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/runtime/optimizer_rule.hpp>

namespace pulse::onednn {

/// One step of AdamW over parallel arrays, in one pass: w, m, v and, when it is not empty, ema are updated.
///
/// Decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101, algorithm 2), with the decay multiplied by the
/// learning rate as in PyTorch. Throws pulse::input_error when the sizes differ or step < 1.
PULSE_HOST_INLINE void adamw_step(std::span<float> w, std::span<const float> g, std::span<float> m, std::span<float> v,
                                  std::span<float> ema, const optimizer_update& now, int threads = 1);

/// AdamW and the moving average in one pass of vector instructions: the update rule of the host.
struct fused_adamw {
    int threads{1};

    void operator()(const optimizer_update& now, std::span<float> weights, std::span<const float> gradients,
                    std::span<float> first_moment, std::span<float> second_moment, std::span<float> average) const {
        adamw_step(weights, gradients, first_moment, second_moment, average, now, threads);
    }
};
static_assert(optimizer_rule<fused_adamw>, "pulse: fused_adamw must be an update rule");

} // namespace pulse::onednn

#ifndef PULSE_SEPARATE_HOST
#include <pulse/onednn/adamw.ipp> // IWYU pragma: keep
#endif
