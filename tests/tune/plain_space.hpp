#pragma once

#include <random>
#include <string>

#include <partition/random_table.hpp>
#include <pulse/tune/tuner.hpp>

#include "drawn_space.hpp"

namespace tuner_tests {

using namespace pulse;
using namespace pulse::test;

template <class Error>
std::string refusal(const drawn_space& s) {
    try {
        static_cast<void>(s.run());
    } catch (const Error& e) { return e.what(); }
    return "nothing was thrown";
}

inline const tune_row* find_row(const tuning& made, tune_verdict verdict) {
    for (const tune_row& row : made.rows) {
        if (row.verdict == verdict) { return &row; }
    }
    return nullptr;
}

/// Eight equal layers with nested skips on two nodes of two devices.
inline drawn_space plain_space() {
    drawn_space s;
    std::mt19937 random{7};
    s.costs = draw_costs(random, 8, skip_pattern::nested);
    for (layer_cost& l : s.costs.layers) {
        l.forward_us = l.backward_input_us = l.backward_weight_us = 10;
        l.parameter_bytes = 800;
        l.saved_bytes = 160;
    }
    s.machine = {.name = "four",
                 .nodes = 2,
                 .devices_per_node = 2,
                 .memory_bytes = 0,
                 .intra_node = {.latency_us = 0.1, .bandwidth_gb_per_s = 1.0},
                 .inter_node = {.latency_us = 1.0, .bandwidth_gb_per_s = 0.1}};
    s.options.global_batch = 16;
    return s;
}

} // namespace tuner_tests
