#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <pulse/runtime/optimizer_rule.hpp>
#include <pulse/train/learning_rate.hpp>
#include <pulse/train/loss_scale.hpp>

namespace pulse {

/// Options of a trainer; the same on every rank.
struct trainer_options {
    std::uint64_t seed{}; ///< of the initial values and of the noise for stochastic rounding
    train::learning_rate_schedule learning_rate{};
    adamw_constants adamw{}; ///< its learning rate is not read; Adafactor reads only the weight decay
    double clip_norm{};      ///< limit of the gradient's norm; 0: no clipping
    /// Clip by the norm of the previous step; the first step is not clipped. A plan that releases gradients can only
    /// clip this way. Checkpoints keep the norm.
    bool clip_by_last_norm{};
    double average_decay{0.999};      ///< limit of the decay of the weights' moving average, if the plan keeps one
    train::loss_scaling loss_scale{}; ///< read where the backend's precision scales the loss
    int threads{1};                   ///< of a host backend
    /// Entries that a run must share with the checkpoint that it resumes from.
    std::map<std::string, std::string> config{};
    bool same_config{true}; ///< resume refuses a checkpoint whose config differs
};

} // namespace pulse
