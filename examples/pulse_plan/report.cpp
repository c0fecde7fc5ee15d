#include "report.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/io/counter_strips.hpp>
#include <pulse/partition/report.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>

#include "words.hpp"

namespace pulse_plan {

namespace {

using pulse::io::bytes_text;

std::string bytes(std::int64_t value) { return bytes_text(static_cast<double>(value)); }

/// "blocks.3 to blocks.7", or one name.
std::string layer_range(const pulse::cost_table& costs, const pulse::stage& s) {
    const auto name = [&](int layer) { return costs.layers[static_cast<std::size_t>(layer)].name.str(); };
    return s.first_layer == s.last_layer ? name(s.first_layer) : name(s.first_layer) + " to " + name(s.last_layer);
}

std::string stages_text(const pulse::plan& planned, const pulse::cost_table& costs) {
    text_table table;
    table.row({"stage", "device", "layers", "F ms", "B ms", "W ms", "sends"});
    for (std::size_t i = 0; i != planned.cut.stages.size(); ++i) {
        const pulse::stage& s = planned.cut.stages[i];
        double forward = 0;
        double backward = 0;
        double weight = 0;
        for (int l = s.first_layer; l <= s.last_layer; ++l) {
            const pulse::layer_cost& layer = costs.layers[static_cast<std::size_t>(l)];
            forward += layer.forward_us;
            backward += layer.backward_input_us;
            weight += layer.backward_weight_us;
        }
        const bool last = i + 1 == planned.cut.stages.size();
        const bool local = last || planned.cut.stages[i + 1].device == s.device;
        const std::string sent = last ? "" : local ? "stays" : bytes(pulse::boundary_bytes(costs, s.last_layer));
        table.row({std::to_string(s.index), std::to_string(s.device), layer_range(costs, s),
                   number_text(forward * 1e-3, 2), number_text(backward * 1e-3, 2), number_text(weight * 1e-3, 2),
                   sent});
    }
    return table.str(3);
}

/// Each kind of memory at its own peak; the last but one column is the peak of all together, as it is laid out.
std::string devices_text(const request& asked, const pulse::plan& planned, const pulse::cost_table& costs,
                         const std::vector<pulse::memory_timeline>& memory) {
    const pulse::partition_report loads = pulse::report_of(planned.cut, costs, planned.routing);
    const std::int64_t limit =
        asked.options.memory_limit_bytes > 0 ? asked.options.memory_limit_bytes : asked.machine.memory_bytes;
    text_table table;
    // Where replicas send their gradients, there is room for them.
    std::vector<std::string> head{"device", "load ms", "of greatest", "weights", "gradients", "optimizer", "workspace"};
    if (planned.data_degree > 1) { head.emplace_back("replicas"); }
    for (const char* name : {"activations", "skips", "peak", "of limit"}) { head.emplace_back(name); }
    table.row(head);
    for (std::size_t d = 0; d != memory.size(); ++d) {
        const pulse::memory_timeline& held = memory[d];
        std::int64_t activations = 0;
        std::int64_t skips = 0;
        for (const pulse::memory_sample& sample : held.samples) {
            activations = std::max(activations, sample.activation_bytes);
            skips = std::max(skips, sample.skip_bytes);
        }
        const std::int64_t peak = planned.predicted.peak_memory_bytes[d];
        const double load = loads.device_load_us[d];
        std::vector<std::string> row{std::to_string(d),
                                     number_text(load * 1e-3, 2),
                                     percent_text(loads.max_load_us > 0 ? load / loads.max_load_us : 1),
                                     bytes(held.weight_bytes),
                                     bytes(held.gradient_bytes),
                                     bytes(held.optimizer_bytes),
                                     bytes(held.workspace_bytes)};
        if (planned.data_degree > 1) { row.push_back(bytes(held.replica_bytes)); }
        for (const std::int64_t kind : {activations, skips, peak}) { row.push_back(bytes(kind)); }
        row.push_back(limit > 0 ? percent_text(static_cast<double>(peak) / static_cast<double>(limit)) : "no limit");
        table.row(row);
    }
    return table.str(1);
}

/// Bytes of one microbatch across devices when the same model is cut another way; empty when it cannot be.
std::vector<std::pair<std::string, std::int64_t>> other_placements(const pulse::cost_table& costs, int devices) {
    std::vector<std::pair<std::string, std::int64_t>> all;
    const auto add = [&](const char* name, const pulse::partition& cut, pulse::skip_routing routing) {
        all.emplace_back(name, pulse::traffic_of(cut, costs, routing).total());
    };
    try {
        const pulse::partition sequential = pulse::sequential_partition(costs, devices);
        add("sequential, skips relayed", sequential, pulse::skip_routing::relayed);
        add("sequential, skips direct", sequential, pulse::skip_routing::direct);
        const pulse::partition interleaved = pulse::interleaved_partition(costs, devices, 2);
        add("interleaved (2 stages a device), skips direct", interleaved, pulse::skip_routing::direct);
    } catch (const pulse::infeasible_error&) {
        // Fewer layers than stages: there is nothing to compare with.
    }
    return all;
}

std::string bytes_across_text(const pulse::plan& planned, const pulse::cost_table& costs, const pulse::tune_row& row) {
    std::string text = "bytes across devices in one step of one pipeline: boundaries " +
                       bytes(planned.predicted.boundary_bytes) + ", skips " + bytes(planned.predicted.skip_bytes) +
                       "; " +
                       (planned.data_degree > 1 ? "gradients to the other replicas " + bytes(row.gradient_bytes) + "\n"
                                                : std::string{"no replicas\n"});
    if (planned.pipeline_degree < 2) { return text; }
    const std::int64_t own = planned.predicted.boundary_bytes + planned.predicted.skip_bytes;
    for (const auto& [name, once] : other_placements(costs, planned.pipeline_degree)) {
        const std::int64_t all = once * planned.microbatches;
        if (all <= 0) { continue; }
        const double change = static_cast<double>(own) / static_cast<double>(all) - 1;
        text += "  against " + bytes(all) + " " + name + ": " + (change > 0 ? "+" : "") + number_text(100 * change, 1) +
                " %\n";
    }
    return text;
}

} // namespace

std::string heading_text(const request& asked, const pulse::cost_table& costs) {
    std::string text = costs.model.str() + " on " + std::to_string(asked.options.devices) + " x " +
                       (costs.device.empty() ? "device" : costs.device.str()) + ": ";
    text +=
        asked.parameters ? grouped(*asked.parameters) + " parameters" : bytes(asked.parameter_bytes) + " of parameters";
    std::size_t residuals = 0;
    for (const pulse::skip_cost& edge : costs.skips) { residuals += edge.residual ? 1 : 0; }
    text += ", " + std::to_string(costs.layers.size()) + " layers, " + std::to_string(costs.skips.size() - residuals) +
            " skip edges";
    if (residuals > 0) { text += ", " + std::to_string(residuals) + " residual edges"; }
    text += ", " + std::to_string(asked.options.parameter_copies) + " copies of each parameter's bytes\n";
    for (const std::string& assumption : asked.assumptions) { text += "assumed: " + assumption + "\n"; }
    return text;
}

std::string plan_text(const request& asked, const pulse::cost_table& costs, const pulse::tuning& found,
                      const std::vector<pulse::memory_timeline>& memory) {
    const pulse::plan& planned = found.best;
    const pulse::prediction& expected = planned.predicted;
    const pulse::tune_row& row = found.best_row();
    std::string text = "plan: " + pulse::to_text(row.candidate) + "\n";
    text += "step " + duration_text(expected.step_us) + ", lower bound " + duration_text(expected.lower_bound_us) +
            " (gap " + percent_text(std::max(0.0, pulse::gap_of(expected.step_us, expected.lower_bound_us))) +
            "), bubble " + percent_text(expected.bubble_ratio) + ", " + number_text(expected.samples_per_s, 2) +
            " samples/s\n\n";
    text += stages_text(planned, costs) + "\n";
    text += devices_text(asked, planned, costs, memory) + "\n";
    return text + bytes_across_text(planned, costs, row);
}

std::string ranking_text(const pulse::tuning& found) {
    std::string text = "the best of " + std::to_string(found.rows.size()) + " candidates (" +
                       std::to_string(found.evaluations) + " scheduled)\n";
    text_table table;
    table.row({"", "candidate", "step ms", "samples/s", "bubble", "peak", "boundaries", "skips", "gradients"});
    constexpr std::size_t shown = 10;
    for (std::size_t i = 0; i < std::min(shown, found.ranking.size()); ++i) {
        const pulse::tune_row& row = found.rows[found.ranking[i]];
        table.row({std::to_string(i + 1), pulse::to_text(row.candidate), number_text(row.step_us * 1e-3, 2),
                   number_text(row.samples_per_s, 2), percent_text(row.bubble_ratio), bytes(row.peak_memory_bytes),
                   bytes(row.boundary_bytes), bytes(row.skip_bytes), bytes(row.gradient_bytes)});
    }
    text += table.str(2);
    if (found.rows.size() > 1) { text += "why the others lost\n"; }
    std::map<pulse::tune_verdict, const pulse::tune_row*> examples;
    for (const pulse::tune_row& row : found.rows) { examples.try_emplace(row.verdict, &row); }
    for (const auto& [verdict, example] : examples) {
        if (verdict == pulse::tune_verdict::best) { continue; }
        text += "  " + std::string{pulse::name_of(verdict)} + ": " + std::to_string(found.count(verdict)) +
                ", such as " + pulse::to_text(example->candidate) + ": " + example->reason + "\n";
    }
    if (found.indivisible > 0) {
        text += "not tried: " + std::to_string(found.indivisible) +
                " combinations of degrees and microbatch sizes that do not multiply to the global batch\n";
    }
    if (found.unmet > 0) {
        text += "not tried: " + std::to_string(found.unmet) + " candidates that the schedule or the split is not for\n";
    }
    return text;
}

} // namespace pulse_plan
