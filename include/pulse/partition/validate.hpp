#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Throws input_error, naming the broken invariant, unless `cut` has the stages of its placement on their devices, in
/// order, without gaps over all layers of `costs` and none empty, and, if folded, both ends of every skip on one
/// device.
constexpr void check_partition(const partition& cut, const cost_table& costs) {
    if (cut.devices < 1) { throw input_error("partition: devices must be at least 1"); }
    if (cut.waves < 1) { throw input_error("partition: waves must be at least 1"); }
    const std::int64_t per_device = cut.kind == placement::folded        ? std::int64_t{2} * cut.waves
                                    : cut.kind == placement::interleaved ? std::int64_t{cut.waves}
                                                                         : std::int64_t{1};
    if (static_cast<std::int64_t>(cut.stages.size()) != per_device * cut.devices) {
        throw input_error("partition: has " + std::to_string(cut.stages.size()) + " stages, but the placement needs " +
                          std::to_string(per_device * cut.devices));
    }
    int next = 0;
    for (std::size_t s = 0; s != cut.stages.size(); ++s) {
        const stage& at = cut.stages[s];
        const auto index = static_cast<int>(s);
        if (at.index != index) {
            throw input_error("partition: stages[" + std::to_string(s) + "].index must be " + std::to_string(index));
        }
        if (at.device != device_of(cut.kind, index, cut.devices)) {
            throw input_error("partition: stages[" + std::to_string(s) + "].device must be " +
                              std::to_string(device_of(cut.kind, index, cut.devices)));
        }
        if (at.first_layer != next) {
            throw input_error("partition: stages[" + std::to_string(s) + "].first_layer must be " +
                              std::to_string(next));
        }
        if (at.last_layer < at.first_layer) {
            throw input_error("partition: stages[" + std::to_string(s) + "] is empty");
        }
        if (at.last_layer >= static_cast<int>(costs.layers.size())) {
            throw input_error("partition: stages[" + std::to_string(s) + "].last_layer is past the last layer");
        }
        next = at.last_layer + 1;
    }
    if (next != static_cast<int>(costs.layers.size())) {
        throw input_error("partition: layers from " + std::to_string(next) + " on are in no stage");
    }
    if (cut.kind != placement::folded) { return; }
    for (std::size_t e = 0; e != costs.skips.size(); ++e) {
        const int from = stage_of(cut.stages, costs.skips[e].from);
        const int to = stage_of(cut.stages, costs.skips[e].to);
        if (cut.stages[static_cast<std::size_t>(from)].device != cut.stages[static_cast<std::size_t>(to)].device) {
            throw input_error("partition: skips[" + std::to_string(e) + "] must have both ends on one device");
        }
    }
}

} // namespace pulse
