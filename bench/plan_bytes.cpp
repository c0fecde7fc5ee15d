#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/zoo/known_models.hpp>

#include "json_output.hpp"
#include "plan_parts.hpp"

namespace pulse_bench {

namespace {

using nlohmann::ordered_json;

struct bytes_options {
    std::vector<std::string> models{};
    std::vector<int> devices{2, 4, 8};
    std::string device{"a100-80gb"};
    double slack{0.0};
    bool quick{};
    std::string json{};
};

/// Bytes that a placement moves between devices for one sample, forward and backward, for either routing of skips.
struct moved {
    std::int64_t relayed{};
    std::int64_t direct{};
};

moved traffic_both_ways(const pulse::partition& of_relayed, const pulse::partition& of_direct,
                        const pulse::cost_table& costs) {
    return {pulse::traffic_of(of_relayed, costs, pulse::skip_routing::relayed).total(),
            pulse::traffic_of(of_direct, costs, pulse::skip_routing::direct).total()};
}

/// The placements of one model on P devices, each cut for its own routing; absent when there is no such cut.
struct placements {
    std::optional<moved> folded{}; ///< no skip travels
    std::optional<moved> sequential{};
    std::optional<moved> interleaved{};
};

struct bytes_row {
    std::string model{};
    int layers{};
    int devices{};
    placements tensors{};     ///< activations and skips alone
    placements conditioned{}; ///< with the conditioning that every boundary relays
    std::string why_not{};
};

double saved_percent(std::int64_t ours, std::int64_t theirs) {
    return theirs == 0 ? 0.0 : 100.0 * (1.0 - static_cast<double>(ours) / static_cast<double>(theirs));
}

placements measure_placements(const pulse::cost_table& costs, int devices, double slack, std::string& why_not) {
    using pulse::skip_routing;
    const auto sequential = [&](skip_routing routing) {
        pulse::sequential_options options{};
        options.slack = slack;
        options.routing = routing;
        return pulse::sequential_partition(costs, devices, options);
    };
    placements made{};
    try {
        pulse::skip_aware_options options{};
        options.slack = slack;
        const pulse::partition cut = pulse::skip_aware_partition(costs, devices, 1, options);
        made.folded = traffic_both_ways(cut, cut, costs);
    } catch (const pulse::infeasible_error& e) { why_not = e.what(); }
    try {
        made.sequential = traffic_both_ways(sequential(skip_routing::relayed), sequential(skip_routing::direct), costs);
    } catch (const pulse::infeasible_error&) {} // fewer layers than devices: no entry
    try {
        const pulse::partition cut = pulse::interleaved_partition(costs, devices, 2);
        made.interleaved = traffic_both_ways(cut, cut, costs);
    } catch (const pulse::infeasible_error&) {}
    return made;
}

bytes_row measure_row(const pulse::known_model& known, const pulse::device& on, int devices, double slack) {
    pulse::cost_table costs = pulse::analytic_costs(known.graph, on, 1, 2);
    bytes_row row{known.name.str(), static_cast<int>(costs.layers.size()), devices, {}, {}, {}};
    row.conditioned = measure_placements(costs, devices, slack, row.why_not);
    costs.conditioning_bytes = costs.frozen_conditioning_bytes = 0;
    row.tensors = measure_placements(costs, devices, slack, row.why_not);
    return row;
}

std::string mb(const std::optional<moved>& of, std::int64_t moved::*way) {
    if (!of) { return "-"; }
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", static_cast<double>((*of).*way) * 1e-6);
    return text;
}

std::string change(const std::optional<moved>& ours, const std::optional<moved>& other, std::int64_t moved::*way) {
    if (!ours || !other) { return "-"; }
    char text[32];
    std::snprintf(text, sizeof text, "%+.1f%%", -saved_percent((*ours).*way, (*other).*way));
    return text;
}

void print_rows(const std::vector<bytes_row>& rows, std::int64_t moved::*way, const char* name) {
    std::printf("\nskips between devices %s: MB per sample, and what folding changes; at the right with conditioning\n",
                name);
    std::printf("%-16s %6s %2s %8s %10s %8s %11s %8s %9s %10s %8s\n", "model", "layers", "P", "folded", "sequential",
                "change", "interleaved", "change", "|  folded", "sequential", "change");
    for (const bytes_row& row : rows) {
        const placements& t = row.tensors;
        const placements& c = row.conditioned;
        std::printf("%-16s %6d %2d %8s %10s %8s %11s %8s %9s %10s %8s\n", row.model.c_str(), row.layers, row.devices,
                    mb(t.folded, way).c_str(), mb(t.sequential, way).c_str(),
                    change(t.folded, t.sequential, way).c_str(), mb(t.interleaved, way).c_str(),
                    change(t.folded, t.interleaved, way).c_str(), mb(c.folded, way).c_str(),
                    mb(c.sequential, way).c_str(), change(c.folded, c.sequential, way).c_str());
    }
}

struct bytes_target {
    std::string_view model{};
    int devices{};
    double saved_percent{};
};

/// Targets of the published and the computed case: activations and skips alone, against relaying when sequential.
constexpr bytes_target bytes_targets[]{{"hunyuan_dit_v12", 2, 90.0}, {"hunyuan_dit_v11", 2, 90.0}, {"sdxl", 4, 86.0}};

void judge(const std::vector<bytes_row>& rows, ordered_json& all) {
    auto& judged = all["targets"] = ordered_json::array();
    for (const bytes_target& target : bytes_targets) {
        for (const bytes_row& row : rows) {
            const placements& t = row.tensors;
            const placements& c = row.conditioned;
            if (row.model != target.model || row.devices != target.devices || !t.folded || !t.sequential) { continue; }
            const double saved = saved_percent(t.folded->relayed, t.sequential->relayed);
            const double conditioned = saved_percent(c.folded->relayed, c.sequential->relayed);
            const bool met = saved >= target.saved_percent - 0.005; // as printed
            std::printf("%s at P=%d against relaying: -%.2f%% (target -%.0f%%): %s; with conditioning -%.2f%%\n",
                        row.model.c_str(), row.devices, saved, target.saved_percent, met ? "met" : "missed",
                        conditioned);
            judged.push_back({{"model", row.model},
                              {"devices", row.devices},
                              {"saved_percent", saved},
                              {"saved_percent_with_conditioning", conditioned},
                              {"target", target.saved_percent},
                              {"met", met}});
        }
    }
}

ordered_json json_of_placements(const placements& of) {
    const auto both = [](const std::optional<moved>& ways) -> ordered_json {
        if (!ways) { return nullptr; }
        return {{"relayed", ways->relayed}, {"direct", ways->direct}};
    };
    return {{"folded", both(of.folded)}, {"sequential", both(of.sequential)}, {"interleaved", both(of.interleaved)}};
}

void measure(const bytes_options& options) {
    const pulse::device* const known_device = pulse::find_device(options.device);
    if (known_device == nullptr) { throw CLI::ValidationError("--device", "unknown device '" + options.device + "'"); }
    const pulse::device& on = *known_device;
    json_output json{options.json};
    for (const std::string& name : options.models) {
        if (pulse::find_model(name) == nullptr) {
            throw CLI::ValidationError("--model", "unknown model '" + name + "'");
        }
    }
    std::vector<bytes_row> rows{};
    for (const pulse::known_model& known : pulse::known_models) {
        bool wanted = options.models.empty();
        for (const std::string& name : options.models) { wanted = wanted || known.name.view() == name; }
        if (options.quick) { wanted = known.name.view() == "ddpm_fmnist"; }
        if (!wanted) { continue; }
        for (const int devices : options.devices) { rows.push_back(measure_row(known, on, devices, options.slack)); }
    }
    if (options.quick) { std::printf("quick run: one small model\n"); }
    std::printf(
        "bytes between devices for one sample, forward and backward, 16-bit; cuts balance the load on %s first\n",
        on.name.str().c_str());
    print_rows(rows, &moved::relayed, "relayed");
    print_rows(rows, &moved::direct, "direct");
    std::printf("\n");
    for (const bytes_row& row : rows) {
        if (!row.why_not.empty()) { std::printf("%s: %s\n", row.model.c_str(), row.why_not.c_str()); }
    }
    ordered_json all{{"format", "pulse-bench-bytes/1"}, {"device", options.device}, {"slack", options.slack}};
    judge(rows, all);
    auto& list = all["rows"] = ordered_json::array();
    for (const bytes_row& row : rows) {
        ordered_json one{{"model", row.model},
                         {"layers", row.layers},
                         {"devices", row.devices},
                         {"tensors", json_of_placements(row.tensors)},
                         {"with_conditioning", json_of_placements(row.conditioned)}};
        if (!row.why_not.empty()) { one["infeasible"] = row.why_not; }
        list.push_back(one);
    }
    json.write(all);
}

} // namespace

void add_bytes_part(CLI::App& app) {
    auto options = std::make_shared<bytes_options>();
    CLI::App* part = app.add_subcommand("bytes", "bytes between devices: folded against sequential and interleaved");
    part->add_option("--model", options->models, "only these models of the zoo");
    part->add_option("--devices", options->devices, "pipeline degrees (2 4 8)")->check(CLI::Range(1, 1024));
    part->add_option("--device", options->device, "device whose rates balance the cuts (a100-80gb)");
    part->add_option("--slack", options->slack, "load that may be traded for bytes (0)")->check(CLI::Range(0.0, 10.0));
    part->add_flag("--quick", options->quick, "one small model");
    part->add_option("--json", options->json, "also write the figures to this file");
    part->callback([options] { measure(*options); });
}

} // namespace pulse_bench
