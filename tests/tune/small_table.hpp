#pragma once

#include <pulse/core/label.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse::test {

/// Six layers of encoder and decoder; constexpr planning uses them, too.
constexpr cost_table small_table() {
    cost_table t{};
    t.model = "small";
    t.device = "none";
    t.microbatch_size = 2;
    t.input_bytes = 64;
    for (unsigned l = 0; l != 6; ++l) {
        layer_cost cost{};
        cost.name = label{"l"} + l;
        cost.forward_us = 2;
        cost.backward_input_us = 2;
        cost.backward_weight_us = 1 + l % 2;
        cost.parameter_bytes = 64;
        cost.saved_bytes = 128;
        cost.output_bytes = 64;
        cost.deferred_bytes = 64;
        t.layers.push_back(cost);
    }
    t.skips = {{0, 5, 64}, {1, 4, 64}, {2, 3, 64}};
    return t;
}

} // namespace pulse::test
