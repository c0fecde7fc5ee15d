#pragma once

#include <cstddef>
#include <string>

#include <pulse/core/separate.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/runtime/nan_trap.hpp>

namespace pulse {

PULSE_INLINE std::string to_text(const value_fault& fault, const graph_view& model) {
    const auto layer = [&] { return "layer '" + model.layers[static_cast<std::size_t>(fault.layer)].name.str() + "'"; };
    std::string what = "the model's input";
    if (fault.where == value_fault::place::loss_gradient) {
        what = "the gradient of the loss";
    } else if (fault.where == value_fault::place::input_gradient) {
        what = "the gradient of the input of " + layer();
    } else if (fault.layer >= 0) {
        what = "the output of " + layer();
    } else if (fault.layer == conditioning_block) {
        what = "the conditioning";
    }
    return what + " (stage " + std::to_string(fault.stage) + ", microbatch " + std::to_string(fault.microbatch) +
           ") is the first that is not finite";
}

} // namespace pulse
