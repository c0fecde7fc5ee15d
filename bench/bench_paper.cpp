// The setting of PULSE's headline: eight devices, three backbones, pulse's tuned plan against the tuned baselines, simulated.
//   bench_paper [--quick] [--model NAME] [--cluster NAME] [--global-batch N] [--refine SECONDS] [--json FILE]
// Every method is tuned over the same degrees, microbatch sizes and memory; see `methods` for what each may choose.
// Exit status: 0 measured, 1 failed, 2 refused.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/tune/tuner.hpp>
#include <pulse/zoo/known_models.hpp>

#include "json_output.hpp"
#include "run_bench.hpp"
#include "tuning_table.hpp"

namespace {

using nlohmann::ordered_json;
using namespace pulse;

constexpr double throughput_claim = 2.3;
constexpr double volume_claim = 89.0;

struct paper_options {
    bool quick{};
    std::string model{};
    std::string cluster{};
    int global_batch{128};
    double refine_seconds{1.0};
    std::string json{};
};

struct setting {
    device on{};
    cluster machine{};
};

/// Eight devices of one node; memory and links as known_clusters has them.
std::vector<setting> settings() {
    return {{v100_32gb, v100_nvlink_8}, {v100_32gb, v100_pcie_8}, {ascend_910a, ascend_910a_8}};
}

/// A method with what its authors let it choose.
struct method {
    std::string name{};
    tune_options space{};
};

tune_options common(const setting& in, int global_batch) {
    tune_options o{};
    o.global_batch = global_batch;
    o.pipeline_degrees = {2, 4, 8};
    // 16-bit values and gradients; a 32-bit copy and two moments make six more.
    o.parameter_copies = 8;
    o.memory_gb_per_s = in.on.memory_gb_per_s * in.on.efficiency;
    o.ranked = 3;
    return o;
}

std::vector<method> methods(const setting& in, int global_batch, double refine_seconds) {
    const tune_options base = common(in, global_batch);
    std::vector<method> all{};
    const auto add = [&](const char* name, auto change) {
        all.push_back({name, base});
        change(all.back().space);
    };
    add("pulse", [&](tune_options& o) {
        o.placements = {placement::folded};
        o.waves = {1, 2};
        o.slacks = {0.0, 0.05};
        if (refine_seconds > 0) {
            o.refine = [refine_seconds](const schedule_problem& problem) {
                return synthesize(problem, {.limit = {.seconds = refine_seconds}});
            };
        }
    });
    for (const skip_routing routing : {skip_routing::relayed, skip_routing::direct}) {
        const bool relayed = routing == skip_routing::relayed;
        add(relayed ? "1F1B, relayed" : "1F1B, direct", [&](tune_options& o) {
            o.placements = {placement::sequential};
            o.routings = {routing};
            o.methods = {schedule_method::one_f_one_b};
            o.split_backwards = {false};
            o.slacks = {0.0, 0.05};
        });
    }
    for (const skip_routing routing : {skip_routing::relayed, skip_routing::direct}) {
        const bool relayed = routing == skip_routing::relayed;
        add(relayed ? "interleaved, relayed" : "interleaved, direct", [&](tune_options& o) {
            o.placements = {placement::interleaved};
            o.chunks = {2, 4};
            o.routings = {routing};
            o.methods = {schedule_method::interleaved};
            o.split_backwards = {false};
        });
    }
    add("ZB-V, direct", [&](tune_options& o) {
        o.placements = {placement::folded};
        o.fold = fold_cut::balanced;
        o.waves = {1};
        o.routings = {skip_routing::direct};
        o.methods = {schedule_method::zb_v};
        o.split_backwards = {true};
    });
    add("data parallel", [&](tune_options& o) {
        o.pipeline_degrees = {1};
        o.placements = {placement::sequential, placement::interleaved};
    });
    add("any placement", [&](tune_options& o) { o.pipeline_degrees = {}; });
    return all;
}

/// What a method came to; all replicas together.
struct outcome {
    std::string name{};
    std::optional<tune_row> row{};
    std::string why{}; ///< when there is no plan

    [[nodiscard]] double samples_per_s() const { return row ? row->samples_per_s : 0.0; }
    [[nodiscard]] double pipeline_bytes() const {
        return row ? static_cast<double>((row->boundary_bytes + row->skip_bytes) * row->candidate.data_degree) : 0.0;
    }
    [[nodiscard]] double gradient_bytes() const {
        return row ? static_cast<double>(row->gradient_bytes * row->candidate.data_degree) : 0.0;
    }
};

outcome tuned(const known_model& model, const setting& in, const method& by) {
    outcome out{by.name, {}, {}};
    try {
        out.row = tune([&](int size) { return analytic_costs(model.graph, in.on, size, 2); }, in.machine, by.space)
                      .best_row();
    } catch (const infeasible_error& e) { out.why = e.what(); }
    return out;
}

/// Step time if all devices did nothing but the passes' arithmetic, evenly.
double ideal_us(const known_model& model, const setting& in, const tune_candidate& c, int global_batch) {
    double load = 0;
    for (const layer_cost& l : analytic_costs(model.graph, in.on, c.microbatch_size, 2).layers) { load += l.load_us(); }
    return load / c.microbatch_size * global_batch / in.machine.devices();
}

/// Which of its resources keeps pulse's plan from the ideal step.
std::string binding(const known_model& model, const setting& in, const outcome& pulse_plan, const method& by,
                    double ideal, double baseline_us) {
    const double room = baseline_us / ideal;
    char text[400];
    if (room < throughput_claim) {
        std::snprintf(text, sizeof text,
                      "compute binds: with no bubble, free links and no optimizer the gain would be %.2fx; %.0f %% of "
                      "that step's "
                      "time is reached",
                      room, 100 * ideal / pulse_plan.row->step_us);
        return text;
    }
    // Take one limit away at a time.
    method free_links = by;
    setting faster = in;
    faster.machine.intra_node = faster.machine.inter_node = {};
    free_links.space.refine = {};
    const outcome linkless = tuned(model, faster, free_links);
    method roomy = by;
    roomy.space.refine = {};
    roomy.space.memory_limit_bytes = std::int64_t{1} << 50;
    const outcome memoryless = tuned(model, in, roomy);
    std::snprintf(
        text, sizeof text,
        "of a possible %.2fx: free links would make pulse %.2fx faster, unlimited memory %.2fx; the rest is bubble, "
        "reduction and optimizer",
        room, linkless.samples_per_s() / pulse_plan.samples_per_s(),
        memoryless.samples_per_s() / pulse_plan.samples_per_s());
    return text;
}

ordered_json compare(const known_model& model, const setting& in, const paper_options& options, bool whole_pipeline) {
    std::vector<method> all = methods(in, options.global_batch, options.refine_seconds);
    if (whole_pipeline) {
        for (method& m : all) {
            if (m.name != "data parallel" && m.name != "any placement") {
                m.space.pipeline_degrees = {in.machine.devices()};
            }
        }
    }
    std::printf("\n%s on %s (%g GB/s between two devices), global batch %d, %s\n",
                std::string{model.name.view()}.c_str(), std::string{in.machine.name.view()}.c_str(),
                in.machine.intra_node.bandwidth_gb_per_s, options.global_batch,
                whole_pipeline ? "one pipeline of 8 devices" : "degrees tuned");
    std::printf("%-22s %10s %10s %9s %12s %10s %9s  %s\n", "", "samples/s", "pulse is", "bubble", "act+skip GB",
                "pulse saves", "grad. GB", "plan");
    ordered_json json{{"model", std::string{model.name.view()}},
                      {"cluster", std::string{in.machine.name.view()}},
                      {"degrees", whole_pipeline ? "one pipeline" : "tuned"},
                      {"methods", ordered_json::array()}};
    std::vector<outcome> found{};
    for (const method& m : all) { found.push_back(tuned(model, in, m)); }
    const outcome& ours = found.front();
    for (const outcome& o : found) {
        ordered_json entry{{"method", o.name}};
        if (!o.row) {
            std::printf("%-22s %s\n", o.name.c_str(), o.why.c_str());
            entry["infeasible"] = o.why;
        } else {
            const double ratio = ours.row ? ours.samples_per_s() / o.samples_per_s() : 0.0;
            const double saved = o.pipeline_bytes() > 0 ? 100 * (1 - ours.pipeline_bytes() / o.pipeline_bytes()) : 0.0;
            std::printf("%-22s %10.3f %9.2fx %8.1f%% %12.3f %10.1f%% %9.3f  %s\n", o.name.c_str(), o.samples_per_s(),
                        ratio, 100 * o.row->bubble_ratio, o.pipeline_bytes() / 1e9, saved, o.gradient_bytes() / 1e9,
                        to_text(o.row->candidate).c_str());
            entry["row"] = pulse_bench::json_of(*o.row);
            entry["pulse_speedup"] = ratio;
            entry["pulse_saves_percent"] = saved;
        }
        json["methods"].push_back(entry);
    }
    if (!ours.row) { return json; }
    const outcome& relayed = found[1];
    if (!relayed.row) { return json; }
    const double ideal = ideal_us(model, in, ours.row->candidate, options.global_batch);
    const double ratio = ours.samples_per_s() / relayed.samples_per_s();
    const double saved = 100 * (1 - ours.pipeline_bytes() / relayed.pipeline_bytes());
    if (ratio < throughput_claim) {
        const std::string why = binding(model, in, ours, all.front(), ideal, relayed.row->step_us);
        std::printf("    %.2fx over relayed 1F1B, not %.1fx: %s\n", ratio, throughput_claim, why.c_str());
        json["throughput_binds"] = why;
    } else {
        std::printf("    %.2fx over relayed 1F1B: the claim of %.1fx holds\n", ratio, throughput_claim);
    }
    if (saved < volume_claim) {
        const auto share = [](const outcome& o) {
            return 100.0 * static_cast<double>(o.row->skip_bytes) /
                   static_cast<double>(std::max<std::int64_t>(o.row->skip_bytes + o.row->boundary_bytes, 1));
        };
        char text[300];
        std::snprintf(text, sizeof text,
                      "skips are %.1f %% of what relayed 1F1B sends at its P = %d; a fold of P = %d, W = %d keeps them "
                      "and crosses "
                      "%d boundaries instead of %d",
                      share(relayed), relayed.row->candidate.pipeline_degree, ours.row->candidate.pipeline_degree,
                      ours.row->candidate.waves,
                      2 * ours.row->candidate.waves * (ours.row->candidate.pipeline_degree - 1),
                      relayed.row->candidate.pipeline_degree - 1);
        std::printf("    %.1f %% of the volume saved, not %.0f %%: %s\n", saved, volume_claim, text);
        json["volume_binds"] = text;
    } else {
        std::printf("    %.1f %% of the volume saved: the claim of %.0f %% holds\n", saved, volume_claim);
    }
    return json;
}

void run(const paper_options& options) {
    pulse_bench::json_output json{options.json};
    ordered_json all{{"format", "pulse-bench-paper/1"},
                     {"global_batch", options.global_batch},
                     {"claim", {{"speedup", throughput_claim}, {"saved_percent", volume_claim}}},
                     {"settings", ordered_json::array()}};
    for (const char* name : {"sd21", "uvit_h2", "hunyuan_dit_v12"}) {
        if (!options.model.empty() && options.model != name) { continue; }
        for (const setting& in : settings()) {
            if (!options.cluster.empty() && in.machine.name.view() != options.cluster) { continue; }
            for (const bool whole_pipeline : {false, true}) {
                all["settings"].push_back(compare(*find_model(name), in, options, whole_pipeline));
            }
        }
    }
    json.write(all);
}

} // namespace

int main(int argc, char** argv) {
    paper_options options{};
    CLI::App app{"Simulated throughput and volume of pulse's tuned plan against tuned baselines on eight devices.",
                 "bench_paper"};
    app.add_flag("--quick", options.quick, "one setting, small batch, no synthesis");
    app.add_option("--model", options.model, "only this one")
        ->check(CLI::IsMember({"sd21", "uvit_h2", "hunyuan_dit_v12"}));
    app.add_option("--cluster", options.cluster, "only this one")
        ->check(CLI::IsMember({"8xv100-nvlink", "8xv100-pcie", "8x910a"}));
    app.add_option("--global-batch", options.global_batch, "samples of a step")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--refine", options.refine_seconds, "seconds of synthesis for each of pulse's best three; 0: none")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_option("--json", options.json, "also write the figures to this file");
    return pulse_bench::run_bench(app, argc, argv, [&] {
        if (options.quick) {
            options.model = "uvit_h2";
            options.cluster = "8xv100-pcie";
            options.global_batch = 16;
            options.refine_seconds = 0;
        }
        run(options);
        return 0;
    });
}
