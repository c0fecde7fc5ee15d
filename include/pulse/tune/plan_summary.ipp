#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/core/text_table.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/partition/merge_layers.hpp>
#include <pulse/partition/report.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/simulate/memory_timeline.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/plan_summary.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse {

namespace detail {

[[nodiscard]] inline std::string size_text(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

/// "blocks.3 to blocks.7", or one name; for a cut inside a layer, the part: "blocks.7#1".
[[nodiscard]] inline std::string layer_range(const cost_table& costs, const stage& s) {
    const auto label_of = [&](int layer) { return costs.layers[static_cast<std::size_t>(layer)].name; };
    const auto name = [&](int layer) { return label_of(layer).str(); };
    const auto whole = [&](int layer) { return std::string{whole_layer(label_of(layer))}; };
    const int end = static_cast<int>(costs.layers.size());
    const bool begins = s.first_layer == 0 || whole(s.first_layer - 1) != whole(s.first_layer);
    const bool ends = s.last_layer + 1 == end || whole(s.last_layer + 1) != whole(s.last_layer);
    const bool inside = whole(s.first_layer) == whole(s.last_layer) && !(begins && ends);
    const std::string first = begins && !inside ? whole(s.first_layer) : name(s.first_layer);
    const std::string last = ends && !inside ? whole(s.last_layer) : name(s.last_layer);
    return first == last ? first : first + " to " + last;
}

[[nodiscard]] inline std::string stages_text(const plan& planned, const cost_table& costs,
                                             const std::vector<double>& device_speed) {
    text_table table;
    table.row({"stage", "device", "layers", "F ms", "B ms", "W ms", "sends"});
    for (std::size_t i = 0; i != planned.cut.stages.size(); ++i) {
        const stage& s = planned.cut.stages[i];
        double forward = 0;
        double backward = 0;
        double weight = 0;
        for (int l = s.first_layer; l <= s.last_layer; ++l) {
            const layer_cost& layer = costs.layers[static_cast<std::size_t>(l)];
            forward += layer.forward_us;
            backward += layer.backward_input_us;
            weight += layer.backward_weight_us;
        }
        const double speed = speed_of(device_speed, s.device);
        // The next stage may belong to another backbone.
        const int next = s.last_layer + 1;
        const bool last = i + 1 == planned.cut.stages.size() || costs.chain_of(next).first_layer == next;
        const bool local = last || planned.cut.stages[i + 1].device == s.device;
        const std::string sent = last ? "" : local ? "stays" : size_text(boundary_bytes(costs, s.last_layer));
        table.row({std::to_string(s.index), std::to_string(s.device), layer_range(costs, s),
                   number_text(forward / speed * 1e-3, 2), number_text(backward / speed * 1e-3, 2),
                   number_text(weight / speed * 1e-3, 2), sent});
    }
    return table.str(3);
}

/// Each kind of memory at its own peak; the column before the last is the joint peak, as laid out.
[[nodiscard]] inline std::string devices_text(const tuning& found) {
    const plan& planned = found.plan;
    const step_model model{planned, found.costs};
    const std::vector<memory_timeline> memory = simulate(planned, model, lower(planned, model), found.world).memory;
    const partition_report loads = report_of(planned.cut, balanced_costs(found.costs, planned.previews > 0),
                                             planned.routing, found.world.device_speed);
    text_table table;
    // With replicas there are slots for their gradients.
    std::vector<std::string> head{"device", "load ms", "of greatest", "weights", "gradients", "optimizer", "workspace"};
    const std::vector<double>& speed = found.world.device_speed;
    if (!speed.empty()) { head.insert(head.begin() + 1, "speed"); }
    if (planned.data_degree > 1) { head.emplace_back("replicas"); }
    if (!planned.frozen_hosts.empty()) { head.emplace_back("frozen"); }
    for (const char* name : {"activations", "skips", "peak", "of limit"}) { head.emplace_back(name); }
    table.row(head);
    for (std::size_t d = 0; d != memory.size(); ++d) {
        const memory_timeline& held = memory[d];
        std::int64_t activations = 0;
        std::int64_t skips = 0;
        for (const memory_sample& sample : held.samples) {
            activations = std::max(activations, sample.activation_bytes);
            skips = std::max(skips, sample.skip_bytes);
        }
        const std::int64_t peak = planned.predicted.peak_memory_bytes[d];
        const std::int64_t limit = found.limits.of(d);
        const double load = loads.device_load_us[d];
        std::vector<std::string> row{std::to_string(d),
                                     number_text(load * 1e-3, 2),
                                     percent_text(loads.max_load_us > 0 ? load / loads.max_load_us : 1),
                                     size_text(held.weight_bytes),
                                     size_text(held.gradient_bytes),
                                     size_text(held.optimizer_bytes),
                                     size_text(held.workspace_bytes)};
        if (!speed.empty()) { row.insert(row.begin() + 1, number_text(speed[d], 2)); }
        if (planned.data_degree > 1) { row.push_back(size_text(held.replica_bytes)); }
        if (!planned.frozen_hosts.empty()) {
            const int device = static_cast<int>(d);
            row.push_back(size_text(model.frozen().network_bytes(device) + 2 * model.frozen().room_bytes(device)));
        }
        for (const std::int64_t kind : {activations, skips, peak}) { row.push_back(size_text(kind)); }
        row.push_back(limit > 0 ? percent_text(static_cast<double>(peak) / static_cast<double>(limit)) : "no limit");
        table.row(row);
    }
    return table.str(1);
}

/// Bytes of one microbatch across devices if the model is cut in other ways; empty if it cannot be.
[[nodiscard]] inline std::vector<std::pair<std::string, std::int64_t>> other_placements(const cost_table& costs,
                                                                                        int devices) {
    std::vector<std::pair<std::string, std::int64_t>> all;
    const auto add = [&](const char* name, const partition& cut, skip_routing routing) {
        all.emplace_back(name, traffic_of(cut, costs, routing).total());
    };
    try {
        const partition sequential = sequential_partition(costs, devices);
        add("sequential, skips relayed", sequential, skip_routing::relayed);
        add("sequential, skips direct", sequential, skip_routing::direct);
        const partition interleaved = interleaved_partition(costs, devices, 2);
        add("interleaved (2 stages a device), skips direct", interleaved, skip_routing::direct);
    } catch (const infeasible_error&) {
        // Fewer layers than stages: nothing to compare with.
    }
    return all;
}

[[nodiscard]] inline std::string bytes_across_text(const plan& planned, const cost_table& costs, const tune_row& row) {
    std::string text =
        "bytes across devices in one step of one pipeline: boundaries " + size_text(planned.predicted.boundary_bytes) +
        ", skips " + size_text(planned.predicted.skip_bytes) + "; " +
        (planned.data_degree > 1
             ? "gradients to the other replicas " + size_text(row.gradient_bytes) +
                   (planned.node_replicas > 1
                        ? ", summed by " + std::to_string(planned.node_replicas) + " replicas of a node first\n"
                        : "\n")
             : std::string{"no replicas\n"});
    if (planned.pipeline_degree < 2 || !planned.further_chains.empty()) { return text; }
    const std::int64_t own = planned.predicted.boundary_bytes + planned.predicted.skip_bytes;
    for (const auto& [name, once] : other_placements(costs, planned.pipeline_degree)) {
        const std::int64_t all = once * planned.microbatches;
        if (all <= 0) { continue; }
        const double change = static_cast<double>(own) / static_cast<double>(all) - 1;
        text += "  against " + size_text(all) + " " + name + ": " + (change > 0 ? "+" : "") +
                number_text(100 * change, 1) + " %\n";
    }
    return text;
}

} // namespace detail

PULSE_INLINE std::string to_text(const parameter_memory& kept) {
    return std::to_string(kept.total_bytes()) + " bytes kept of each (value " + std::to_string(kept.scalar_bytes) +
           ", gradient " + std::to_string(kept.gradient_bytes) + ", optimizer " + std::to_string(kept.state_bytes) +
           (kept.block_bytes > 0 ? " and " + std::to_string(kept.block_bytes) + " of " + std::to_string(moment_block)
                                 : "") +
           (kept.form.is_factored() ? " and 4 of each row and column" : "") +
           (kept.sharded ? " shared by the replicas)" : ")");
}

namespace detail {

/// The steps of all extents, and the mean over a run.
[[nodiscard]] inline std::string extents_text(const tuning& found) {
    text_table table;
    table.row({"extent", "share", "step", "lower bound", "bubble", "samples/s"});
    found.each_extent([&](const extent& to, const plan& planned, const cost_table&, double share) {
        const prediction& expected = planned.predicted;
        table.row({text_of(to), percent_text(share), duration_text(expected.step_us),
                   duration_text(expected.lower_bound_us), percent_text(expected.bubble_ratio),
                   number_text(expected.samples_per_s, 2)});
    });
    return table.str(1) + "the mean step takes " + duration_text(found.mean_step_us()) +
           "; what follows is of the first extent\n\n";
}

} // namespace detail

PULSE_INLINE std::string plan_summary(const tuning& found) {
    const prediction& expected = found.plan.predicted;
    const tune_row& row = found.best_row();
    std::string text = "plan: " + to_text(found.best_candidate()) + "\n";
    if (!found.others.empty()) { text += detail::extents_text(found); }
    if (found.plan.previews > 0) {
        text += "self-conditioning: " + std::to_string(found.plan.previews) + " of " +
                std::to_string(found.plan.microbatches) + " microbatches have a preview\n";
    }
    if (found.plan.gradient_release) {
        text += "gradient release: gradients of stages of one device share memory where they can\n";
    }
    text += "step " + duration_text(expected.step_us) + ", lower bound " + duration_text(expected.lower_bound_us) +
            " (gap " + percent_text(gap_of(expected.step_us, expected.lower_bound_us)) + "), bubble " +
            percent_text(expected.bubble_ratio) + ", " + number_text(expected.samples_per_s, 2) + " samples/s\n\n";
    text += detail::stages_text(found.plan, found.costs, found.world.device_speed) + "\n";
    text += detail::devices_text(found) + "\n";
    return text + detail::bytes_across_text(found.plan, found.costs, row);
}

} // namespace pulse
