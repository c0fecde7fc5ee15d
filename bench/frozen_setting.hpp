#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/zoo/frozen_parts.hpp>
#include <pulse/zoo/known_models.hpp>

namespace pulse_bench {

/// A training run of DiffusionPipe's authors (arXiv 2405.01248) on nodes of eight A100-80GB. We do not know their
/// batch, which is an argument, nor their network, which is assumed to be that of cloud servers with such nodes: four
/// adapters of 100 Gb/s.
struct frozen_setting {
    std::string model{};
    pulse::cluster machine{};
    int global_batch{};
};

[[nodiscard]] inline pulse::cluster a100_nodes(int nodes) {
    return {.name = pulse::label{"a100-nodes-"} + static_cast<unsigned>(nodes),
            .nodes = nodes,
            .devices_per_node = 8,
            .memory_bytes = pulse::a100_80gb.memory_bytes,
            .intra_node = pulse::nvlink3,
            .inter_node = nodes > 1 ? bundle(pulse::roce_100g, 4) : pulse::link{}};
}

/// Costs of a setting's model, including its frozen components.
[[nodiscard]] inline pulse::cost_table frozen_setting_costs(const frozen_setting& in, int size) {
    pulse::cost_table costs = pulse::analytic_costs(pulse::find_model(in.model)->graph, pulse::a100_80gb, size, 2);
    costs.frozen = pulse::frozen_costs(in.model, pulse::a100_80gb, 2);
    return costs;
}

[[nodiscard]] inline frozen_setting frozen_setting_of(const std::string& model, int nodes, int batch_per_device) {
    return {model, a100_nodes(nodes), 8 * nodes * batch_per_device};
}

/// Microseconds of all frozen components for `samples` samples on one device.
[[nodiscard]] inline double encoding_us(const pulse::cost_table& costs, int samples) {
    double sum = 0;
    for (const auto& c : costs.frozen) { sum += pulse::least_work_us(c, samples); }
    return sum;
}

/// Bytes of a device that encodes: all weights, and the live tensors of the largest layer.
[[nodiscard]] inline std::int64_t encoding_bytes(const pulse::cost_table& costs) {
    std::int64_t weights = 0;
    std::int64_t live = 0;
    for (const auto& c : costs.frozen) {
        weights += c.parameter_bytes();
        for (const auto& l : c.layers) { live = std::max(live, l.live_bytes); }
    }
    return weights + live;
}

} // namespace pulse_bench
