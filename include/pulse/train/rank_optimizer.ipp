#pragma once

#include <cstddef>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/train/rank_optimizer.hpp>

namespace pulse::train {

PULSE_INLINE const optimizer_options& require_good(std::size_t layers, std::size_t microbatches,
                                                   const optimizer_options& o) {
    const auto require = [](bool good, const char* what) {
        if (!good) { throw input_error{std::string{"rank_optimizer: "} + what}; }
    };
    require(layers > 0, "a model has at least 1 layer");
    require(microbatches > 0, "a step has at least 1 microbatch");
    require(o.constants.beta1 >= 0 && o.constants.beta1 < 1, "beta1 must be at least 0 and below 1");
    require(o.constants.beta2 >= 0 && o.constants.beta2 < 1, "beta2 must be at least 0 and below 1");
    require(o.constants.epsilon > 0, "epsilon must be above 0");
    require(o.constants.weight_decay >= 0, "weight_decay must be at least 0");
    require(o.clip_norm >= 0, "clip_norm must be at least 0");
    require(o.average_decay >= 0 && o.average_decay <= 1, "average_decay must be 0 to 1");
    return o;
}

} // namespace pulse::train
