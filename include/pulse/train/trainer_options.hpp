#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <pulse/runtime/optimizer_rule.hpp>
#include <pulse/train/learning_rate.hpp>
#include <pulse/train/loss_scale.hpp>

namespace pulse {

/// How a trainer trains; the same on every rank.
struct trainer_options {
    std::uint64_t seed{}; ///< of the initial values, and of the noise by which stochastic weights are rounded
    train::learning_rate_schedule learning_rate{};
    adamw_constants adamw{}; ///< but for its learning rate; Adafactor reads the weight decay
    double clip_norm{};      ///< limit of the gradient's norm; 0 does not clip
    /// The norm is that of the step before, and the first step is not clipped: a plan that releases gradients can clip
    /// so. A checkpoint keeps the norm.
    bool clip_by_last_norm{};
    double average_decay{0.999};      ///< limit of the weights' moving average, where the plan keeps one
    train::loss_scaling loss_scale{}; ///< read where the backend's precision scales the loss
    int threads{1};                   ///< of a backend on the host
    /// What a run that continues from a checkpoint of this one must have in common with it.
    std::map<std::string, std::string> config{};
    bool same_config{true}; ///< whether resume refuses a checkpoint of another config
};

} // namespace pulse
