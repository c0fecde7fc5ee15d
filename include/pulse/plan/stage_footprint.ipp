#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/stage_footprint.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

PULSE_CONSTEXPR stage_footprint lay_out_stage(const cost_table& costs, int first, int last,
                                              const std::vector<char>& held_apart, bool split_backward) {
    stage_footprint made{};
    made.first_layer = first;
    made.layers.resize(static_cast<std::size_t>(last - first + 1), layer_offsets{});
    const auto take = [](std::int64_t& end, std::int64_t bytes) {
        const std::int64_t at = end;
        end += aligned(bytes);
        return at;
    };
    const chain_costs chain = costs.chain_of(first);
    if (first == chain.first_layer) { made.input = take(made.saved_bytes, chain.input_bytes); }
    std::int64_t largest_gradient = 0;
    std::int64_t largest_deferred = 0;
    for (int l = first; l <= last; ++l) {
        const layer_cost& cost = costs.layers[static_cast<std::size_t>(l)];
        layer_offsets& at = made.layers[static_cast<std::size_t>(l - first)];
        at.saved = take(made.saved_bytes, cost.saved_bytes);
        if (held_apart[static_cast<std::size_t>(l)] == 0) { at.output = take(made.saved_bytes, cost.output_bytes); }
        if (l < last && largest_gradient < cost.gradient_bytes()) { largest_gradient = cost.gradient_bytes(); }
        largest_deferred = largest_deferred < cost.deferred_bytes ? cost.deferred_bytes : largest_deferred;
        if (split_backward) {
            if (l < last) { at.output_gradient = take(made.deferred_bytes, cost.gradient_bytes()); }
            at.deferred = take(made.deferred_bytes, cost.deferred_bytes);
        }
    }
    if (!split_backward) {
        // One inner gradient needs one slot, more need two.
        const std::int64_t gradient_slots = last - first < 2 ? last - first : 2;
        for (int l = first; l <= last; ++l) {
            layer_offsets& at = made.layers[static_cast<std::size_t>(l - first)];
            if (l < last) { at.output_gradient = (last - 1 - l) % 2 * aligned(largest_gradient); }
            at.deferred = gradient_slots * aligned(largest_gradient);
        }
        made.deferred_bytes = gradient_slots * aligned(largest_gradient) + aligned(largest_deferred);
    }
    return made;
}

} // namespace pulse
