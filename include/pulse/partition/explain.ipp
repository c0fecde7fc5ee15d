#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/partition/explain.hpp>
#include <pulse/partition/find_skip_aware.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

namespace detail {

[[nodiscard]] inline bool folds(const cost_table& costs, int devices, int waves, std::size_t region_limit) {
    return find_skip_aware_partition(costs, devices, waves, {.slack = 0.0, .memory = {}, .region_limit = region_limit})
        .has_value();
}

[[nodiscard]] inline std::string text_of_skip(const cost_table& costs, const skip_cost& edge) {
    return costs.layers[static_cast<std::size_t>(edge.from)].name.str() + " -> " +
           costs.layers[static_cast<std::size_t>(edge.to)].name.str() + " (layers " + std::to_string(edge.from) +
           " and " + std::to_string(edge.to) + ")";
}

/// Number of other skips that overlap `edge` without nesting, which prevents folding.
[[nodiscard]] inline int crossings(const cost_table& costs, const skip_cost& edge) {
    int count = 0;
    for (const skip_cost& other : costs.skips) {
        const bool after = edge.from < other.from && other.from < edge.to && edge.to < other.to;
        const bool before = other.from < edge.from && edge.from < other.to && other.to < edge.to;
        if (after || before) { ++count; }
    }
    return count;
}

/// The skip without which the table folds; of several, the one that crosses most others. If no single skip is to blame,
/// the skip at which the table stops folding as skips are added in order.
[[nodiscard]] inline std::size_t blocking_skip(const cost_table& costs, int devices, int waves, std::size_t limit,
                                               bool& alone) {
    cost_table fewer = costs;
    std::size_t culprit = 0;
    int most = -1;
    for (std::size_t e = 0; e != costs.skips.size(); ++e) {
        const int count = crossings(costs, costs.skips[e]);
        if (count <= most) { continue; }
        fewer.skips = costs.skips;
        fewer.skips.erase(fewer.skips.begin() + static_cast<std::ptrdiff_t>(e));
        if (folds(fewer, devices, waves, limit)) {
            culprit = e;
            most = count;
        }
    }
    alone = most >= 0;
    if (alone) { return culprit; }
    fewer.skips.clear();
    for (std::size_t e = 0; e != costs.skips.size(); ++e) {
        fewer.skips.push_back(costs.skips[e]);
        if (!folds(fewer, devices, waves, limit)) { return e; }
    }
    return culprit; // unreachable: with all skips it does not fold
}

/// The smallest possible greatest memory of a device over all cuts, whatever their loads; none without a cut.
[[nodiscard]] inline std::optional<std::int64_t> least_folded_memory(const cost_table& costs, int devices, int waves,
                                                                     const skip_aware_options& options) {
    cost_table weighed = costs; // bytes instead of microseconds
    std::int64_t total = 0;
    for (layer_cost& layer : weighed.layers) {
        total += options.memory.bytes_of(layer);
        layer.forward_us = static_cast<double>(options.memory.bytes_of(layer));
        layer.backward_input_us = 0.0;
        layer.backward_weight_us = 0.0;
    }
    if (devices == 1) { return total; }
    const auto cut = find_skip_aware_partition(weighed, devices, waves,
                                               {.slack = 0.0, .memory = {}, .region_limit = options.region_limit});
    if (!cut) { return std::nullopt; }
    std::vector<std::int64_t> held(static_cast<std::size_t>(devices), 0);
    for (const stage& part : cut->stages) {
        for (int l = part.first_layer; l <= part.last_layer; ++l) {
            held[static_cast<std::size_t>(part.device)] +=
                options.memory.bytes_of(costs.layers[static_cast<std::size_t>(l)]);
        }
    }
    return *std::max_element(held.begin(), held.end());
}

} // namespace detail

PULSE_INLINE std::string explain_infeasible(const cost_table& costs, int devices, int waves,
                                            const skip_aware_options& options) {
    const auto layers = static_cast<std::int64_t>(costs.layers.size());
    const std::int64_t stages = std::int64_t{2} * devices * waves;
    const std::string shape = std::to_string(devices) + (devices == 1 ? " device" : " devices") + " with " +
                              std::to_string(waves) + (waves == 1 ? " wave" : " waves");
    if (stages > layers) {
        return "no folded partition over " + shape + ": it needs " + std::to_string(stages) +
               " stages, but the model has " + std::to_string(layers) + (layers == 1 ? " layer" : " layers");
    }
    if (const auto least = detail::least_folded_memory(costs, devices, waves, options)) {
        if (!options.memory.device_limit_bytes.empty()) {
            return "no folded partition over " + shape +
                   " fits the memory limits of the devices: the smallest common limit that would suffice is " +
                   std::to_string(*least) + " bytes";
        }
        return "no folded partition over " + shape + " fits the memory limit of " +
               std::to_string(options.memory.limit_bytes) + " bytes per device: the smallest that would suffice is " +
               std::to_string(*least) + " bytes";
    }
    bool alone = false;
    const std::size_t edge = detail::blocking_skip(costs, devices, waves, options.region_limit, alone);
    int most = devices - 1;
    while (most > 1 && !detail::folds(costs, most, waves, options.region_limit)) { --most; }
    return "no folded partition over " + shape + " keeps both ends of every skip on one device: skip " +
           detail::text_of_skip(costs, costs.skips[edge]) +
           (alone ? " prevents it" : " prevents it together with the skips listed before it") + "; at most " +
           std::to_string(most) + (most == 1 ? " device is" : " devices are") + " possible";
}

} // namespace pulse
