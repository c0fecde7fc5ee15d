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

/// A training of DiffusionPipe's (arXiv 2405.01248) on nodes of eight A100-80GB. Batches are not known to us and are
/// asked for; neither is the network, which is taken to be that of the cloud servers that have such nodes: four
/// adapters of 100 Gb/s.
struct frozen_setting {
    std::string model{};
    pulse::cluster machine{};
    int global_batch{};
    /// Weights that are neither trained nor a component's: every device has them.
    std::int64_t locked_bytes{};
};

[[nodiscard]] inline pulse::cluster a100_nodes(int nodes) {
    return {.name = pulse::label{"a100-nodes-"} + static_cast<unsigned>(nodes),
            .nodes = nodes,
            .devices_per_node = 8,
            .memory_bytes = pulse::a100_80gb.memory_bytes,
            .intra_node = pulse::nvlink3,
            .inter_node = nodes > 1 ? bundle(pulse::roce_100g, 4) : pulse::link{}};
}

/// ControlNet 1.0 on SD 1.5: per sample 283.29 GFLOP forward of the trained branch, 541.83 of the locked decoder. The
/// branch is a copy of encoder and middle, and what it has besides is added to its first layer; the locked decoder
/// passes gradients on and has none of its own. The locked encoder and middle are a component, as text and noise of a
/// step are known before it; it reads latents, so those are encoded two steps ahead.
[[nodiscard]] inline pulse::cost_table controlnet_costs(int size, std::int64_t* locked_bytes = nullptr) {
    const auto& graph = pulse::find_model("sd15")->graph;
    pulse::cost_table costs = pulse::analytic_costs(graph, pulse::a100_80gb, size, 2);
    const pulse::cost_table one = pulse::analytic_costs(graph, pulse::a100_80gb, 1, 2);
    costs.model = "controlnet_sd15";
    costs.frozen = pulse::frozen_costs("sd15", pulse::a100_80gb, 2);
    const int decoder = std::min_element(costs.skips.begin(), costs.skips.end(), [](const auto& a, const auto& b) {
                            return a.to < b.to;
                        })->to;
    pulse::frozen_component locked{"locked_encoder", pulse::frozen_use::input, one.input_bytes, 0, 4, {}};
    const double bytes_per_us = pulse::a100_80gb.memory_gb_per_s * pulse::a100_80gb.efficiency * 1e3;
    for (const auto& skip : one.skips) { locked.result_bytes += skip.bytes; }
    std::int64_t decoder_bytes = 0;
    for (std::size_t l = 0; l != costs.layers.size(); ++l) {
        pulse::layer_cost& layer = costs.layers[l];
        if (static_cast<int>(l) < decoder) {
            const std::int64_t made = one.layers[l].output_bytes;
            locked.layers.push_back({layer.name, static_cast<double>(layer.parameter_bytes) / bytes_per_us,
                                     one.layers[l].forward_us, layer.parameter_bytes, made,
                                     3 * made + one.layers[l].workspace_bytes});
        } else {
            decoder_bytes += layer.parameter_bytes;
            layer.backward_weight_us = 0;
            layer.deferred_bytes = 0;
            layer.parameter_bytes = 0;
        }
    }
    locked.result_bytes += one.layers[static_cast<std::size_t>(decoder) - 1].output_bytes;
    constexpr double branch_flops = 283'291'975'680.0 - 261'439'651'840.0;
    const double flops_per_us = pulse::a100_80gb.efficiency * pulse::a100_80gb.peak_flops_per_s(2) * 1e-6;
    const double added_us = size * branch_flops / flops_per_us;
    costs.layers.front().forward_us += added_us;
    costs.layers.front().backward_input_us += added_us;
    costs.layers.front().backward_weight_us += added_us;
    costs.frozen.push_back(std::move(locked));
    if (locked_bytes != nullptr) { *locked_bytes = decoder_bytes; }
    return costs;
}

/// Costs of a setting's model, its frozen components among them.
[[nodiscard]] inline pulse::cost_table frozen_setting_costs(const frozen_setting& in, int size) {
    if (in.model == "controlnet_sd15") { return controlnet_costs(size); }
    pulse::cost_table costs = pulse::analytic_costs(pulse::find_model(in.model)->graph, pulse::a100_80gb, size, 2);
    costs.frozen = pulse::frozen_costs(in.model, pulse::a100_80gb, 2);
    return costs;
}

[[nodiscard]] inline frozen_setting frozen_setting_of(const std::string& model, int nodes, int batch_per_device) {
    frozen_setting in{model, a100_nodes(nodes), 8 * nodes * batch_per_device, 0};
    if (model == "controlnet_sd15") { static_cast<void>(controlnet_costs(1, &in.locked_bytes)); }
    in.machine.memory_bytes -= in.locked_bytes;
    return in;
}

/// Microseconds of all frozen components on so many samples, on one device.
[[nodiscard]] inline double encoding_us(const pulse::cost_table& costs, int samples) {
    double sum = 0;
    for (const auto& c : costs.frozen) { sum += pulse::least_work_us(c, samples); }
    return sum;
}

/// What a device that encodes keeps: all weights, and what the greatest layer has alive.
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
