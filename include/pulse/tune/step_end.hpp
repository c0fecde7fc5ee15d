#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/hardware/ring_all_reduce.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/tune/rank_grid.hpp>

namespace pulse {

/// Time of the optimizer over `parameter_bytes` of one copy: of `copies` copies (values, gradients, moments, ...) all are
/// read and all but the gradients written, at the rate of the device's memory. 0 GB/s: no time.
[[nodiscard]] constexpr double optimizer_us(std::int64_t parameter_bytes, int copies, double memory_gb_per_s) noexcept {
    if (!(memory_gb_per_s > 0.0) || copies < 1) { return 0; }
    return static_cast<double>(parameter_bytes) * (2.0 * copies - 1.0) / (memory_gb_per_s * 1e3);
}

/// Gradients that are reduced in one piece.
struct gradient_bucket {
    int device{};
    int stage{};
    std::int64_t bytes{};
    /// Of the stage's last pass, how long before its end the bucket is complete.
    double before_end_us{};
};

/// The buckets of a partition; a layer without parameters is in none.
///
/// A stage of a pipeline is one bucket, complete at the end of the stage's last pass. One device alone (plain data
/// parallelism) reduces layer by layer while its last backward goes on: a bucket is closed when it has `least_bytes` or
/// the lowest layer of the stage with parameters is in it, be that before the pass ends or at its end. `split_backward`
/// says whether the stage's last pass is W or B + W.
[[nodiscard]] constexpr std::vector<gradient_bucket> gradient_buckets(const cost_table& costs, const partition& cut,
                                                                      bool split_backward,
                                                                      std::int64_t least_bytes = 25'000'000) {
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
            // A sum that went down again need not meet 0 exactly.
            const bool at_end = cut.devices != 1 || l == s.first_layer;
            open.before_end_us = at_end ? 0.0 : std::max(before_end_us, 0.0);
            buckets.push_back(open);
            open.bytes = 0;
        }
    }
    return buckets;
}

/// When every device has its gradients reduced and its parameters stepped, from the times at which its passes end.
struct step_end {
    std::vector<double> device_us{};
    double step_us{};
};

/// Ends a step: buckets are reduced in the order in which they are complete, rings of one group one after the other, while
/// the passes go on; a device steps its parameters when its passes and reductions have ended.
///
/// `stage_end_us`: end of the last pass of every stage; `device_end_us`: of every device; `device_optimizer_us`: time of
/// its optimizer. Traffic of the pipeline on the same links is not taken into account.
[[nodiscard]] constexpr step_end end_step(const std::vector<gradient_bucket>& buckets, int replicas,
                                          const std::vector<replica_ring>& rings,
                                          const std::vector<double>& stage_end_us,
                                          const std::vector<double>& device_end_us,
                                          const std::vector<double>& device_optimizer_us) {
    step_end made{device_end_us, 0};
    std::vector<std::size_t> order{};
    for (std::size_t b = 0; b != buckets.size() && replicas > 1; ++b) { order.push_back(b); }
    const auto ready = [&](std::size_t b) {
        return stage_end_us[static_cast<std::size_t>(buckets[b].stage)] - buckets[b].before_end_us;
    };
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return ready(a) != ready(b) ? ready(a) < ready(b) : a < b; });
    std::vector<double> free_us(rings.size(), 0.0);
    for (const std::size_t b : order) {
        const auto device = static_cast<std::size_t>(buckets[b].device);
        double& line_free = free_us[static_cast<std::size_t>(rings[device].group)];
        line_free = std::max(line_free, ready(b)) + ring_all_reduce_us(buckets[b].bytes, replicas, rings[device].line);
        made.device_us[device] = std::max(made.device_us[device], line_free);
    }
    for (std::size_t d = 0; d != made.device_us.size(); ++d) {
        made.device_us[d] += device_optimizer_us[d];
        made.step_us = std::max(made.step_us, made.device_us[d]);
    }
    return made;
}

} // namespace pulse
