#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/optimizer_rule.hpp>
#include <pulse/train/loss_scale.hpp>

namespace pulse::train {

/// Position of an optimizer's rank among the replicas of its stages, and whether they share their state.
struct optimizer_replicas {
    replica_place place{};
    /// Each replica keeps moments, average and master weights of only its share_of every layer (ZeRO, stage 1;
    /// Rajbhandari et al. 2020). The executor must be told the same (executor_options).
    bool sharded{};
};

/// Optimizer options; the same on every rank, except the place.
struct optimizer_options {
    adamw_constants constants{};
    double clip_norm{};          ///< 0: no clipping
    bool clip_by_last_norm{};    ///< clip by the previous step's norm; the first step is not clipped
    double average_decay{0.999}; ///< limit of the decay's warm-up
    loss_scaling scaling{};      ///< read where the loss is scaled
    optimizer_replicas replicas{};
    optimizer_form form{};
    std::uint64_t seed{}; ///< of the noise for stochastic rounding
    /// Layers are updated one stage at a time, before the norm of the whole gradient is known (plan::gradient_release).
    bool gradient_release{};
};

/// Returns the options. Throws input_error naming what is out of range.
[[nodiscard]] inline const optimizer_options& require_good(std::size_t layers, std::size_t microbatches,
                                                           const optimizer_options& o) {
    const auto require = [](bool good, const char* what) {
        if (!good) { throw input_error{std::string{"rank_optimizer: "} + what}; }
    };
    require(layers > 0, "layers must be at least 1");
    require(microbatches > 0, "microbatches must be at least 1");
    require(o.constants.beta1 >= 0 && o.constants.beta1 < 1, "beta1 must be at least 0 and below 1");
    require(o.constants.beta2 >= 0 && o.constants.beta2 < 1, "beta2 must be at least 0 and below 1");
    require(o.constants.epsilon > 0, "epsilon must be above 0");
    require(o.constants.weight_decay >= 0, "weight_decay must be at least 0");
    require(o.clip_norm >= 0, "clip_norm must be at least 0");
    require(o.average_decay >= 0 && o.average_decay <= 1, "average_decay must be 0 to 1");
    require(!o.replicas.sharded || !o.form.is_factored(), unshared_moments);
    require(!o.gradient_release || o.clip_norm == 0 || o.clip_by_last_norm,
            "gradient_release needs clip_norm 0 or clip_by_last_norm: the step's own norm is known only after its "
            "gradients are released");
    return o;
}

} // namespace pulse::train
