#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/simulate/duration.hpp>
#include <pulse/simulate/simulation_options.hpp>
#include <pulse/tune/step_end.hpp>

namespace pulse {

PULSE_CONSTEXPR std::vector<gradient_bucket> gradient_buckets(const cost_table& costs, const partition& cut,
                                                              bool split_backward, std::int64_t least_bytes) {
    std::vector<gradient_bucket> buckets{};
    const auto backward_us = [&](const layer_cost& layer) {
        return layer.backward_weight_us + (split_backward ? 0.0 : layer.backward_input_us);
    };
    for (const stage& s : cut.stages) {
        double before_end_us = 0;
        int lowest = -1; // with parameters
        for (int l = s.last_layer; l >= s.first_layer; --l) {
            const layer_cost& layer = costs.layers[static_cast<std::size_t>(l)];
            before_end_us += backward_us(layer);
            if (layer.parameter_bytes > 0) { lowest = l; }
        }
        gradient_bucket open{s.device, s.index, 0, 0};
        for (int l = s.last_layer; lowest >= 0 && l >= lowest; --l) {
            const layer_cost& layer = costs.layers[static_cast<std::size_t>(l)];
            open.bytes += layer.parameter_bytes;
            before_end_us -= backward_us(layer);
            if (l != lowest && (cut.devices != 1 || open.bytes < least_bytes)) { continue; }
            // The difference need not be exactly 0 after rounding.
            const bool at_end = cut.devices != 1 || l == s.first_layer;
            open.before_end_us = at_end ? 0.0 : std::max(before_end_us, 0.0);
            buckets.push_back(open);
            open.bytes = 0;
        }
    }
    return buckets;
}

PULSE_CONSTEXPR double end_step_us(const std::vector<gradient_bucket>& buckets, int replicas,
                                   const simulation_options& world, const std::vector<double>& stage_end_us,
                                   double passes_end_us, std::int64_t parameter_bytes) {
    std::vector<std::size_t> order{};
    for (std::size_t b = 0; b != buckets.size() && replicas > 1; ++b) { order.push_back(b); }
    const auto ready = [&](std::size_t b) {
        return stage_end_us[static_cast<std::size_t>(buckets[b].stage)] - buckets[b].before_end_us;
    };
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return ready(a) != ready(b) ? ready(a) < ready(b) : a < b; });
    double free_us = 0;
    for (const std::size_t b : order) {
        free_us = std::max(free_us, ready(b)) +
                  reduce_us(world, 0, gradient_bytes_of(buckets[b].bytes, world.kept), replicas);
    }
    return std::max(passes_end_us, free_us) + update_us(world, 0, parameter_bytes, replicas);
}

} // namespace pulse
