// The cards that people own, the setting of PULSE's headline, eight devices, and four nodes with slow links between
// them: pulse's tuned plan against the tuned baselines, simulated.
//   bench_paper [--quick] [--model NAME] [--cluster NAME...] [--global-batch N] [--refine SECONDS] [--json FILE]
// Every method is tuned over the same degrees, microbatch sizes and memory; see `methods` and tune_sharding for what
// each may choose.
// Exit status: 0 measured, 1 failed, 2 refused.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <future>
#include <optional>
#include <string>
#include <string_view>
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

#include "fully_sharded.hpp"
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
    std::vector<std::string> clusters{};
    int global_batch{}; ///< 0: the setting's own
    double refine_seconds{1.0};
    std::string json{};
};

struct setting {
    device on{};
    cluster machine{};
    int global_batch{};
    std::vector<std::string> models{};
};

/// Servers of V100 cards on PCIe with Ethernet of 12 Gb/s between them.
constexpr cluster slow_nodes{.name = "4x8xv100-slow",
                             .nodes = 4,
                             .devices_per_node = 8,
                             .memory_bytes = v100_32gb.memory_bytes,
                             .intra_node = {.latency_us = 10.0, .bandwidth_gb_per_s = 12.0},
                             .inter_node = {.latency_us = 15.0, .bandwidth_gb_per_s = 1.5}};

/// The cards that people own: RTX 4090 on PCIe behind the host, as two of them exchange without peer access, and in two
/// servers with Ethernet of 10 Gb/s between.
constexpr cluster own_cards(const label& name, int nodes, int devices_per_node) {
    return {.name = name,
            .nodes = nodes,
            .devices_per_node = devices_per_node,
            .memory_bytes = rtx_4090.memory_bytes,
            .intra_node = {.latency_us = 15.0, .bandwidth_gb_per_s = 10.0},
            .inter_node = {.latency_us = 30.0, .bandwidth_gb_per_s = nodes > 1 ? 1.25 : 0.0}};
}

/// The cards that people own, eight devices of one node with memory and links as known_clusters has them, and the slow
/// nodes.
std::vector<setting> settings() {
    const std::vector<std::string> of_the_paper{"sd21", "uvit_h2", "hunyuan_dit_v12"};
    const std::vector<std::string> all{"sd21", "uvit_h2", "hunyuan_dit_v12", "sdxl"};
    return {{rtx_4090, own_cards("8xrtx-4090", 1, 8), 16, all}, {rtx_4090, own_cards("4xrtx-4090", 1, 4), 16, all},
            {rtx_4090, own_cards("2xrtx-4090", 1, 2), 16, all}, {rtx_4090, own_cards("2x4xrtx-4090", 2, 4), 16, all},
            {v100_32gb, v100_nvlink_8, 128, of_the_paper},      {v100_32gb, v100_pcie_8, 128, of_the_paper},
            {ascend_910a, ascend_910a_8, 128, of_the_paper},    {v100_32gb, slow_nodes, 256, all}};
}

/// A method with what its authors let it choose.
struct method {
    std::string name{};
    tune_options space{};
};

tune_options common(const setting& in) {
    tune_options o{};
    o.global_batch = in.global_batch;
    for (int p = 2; p <= in.machine.devices(); p *= 2) { o.pipeline_degrees.push_back(p); }
    // 16-bit values and gradients; 32-bit masters and two moments: of every method the same, no average.
    o.kept = {.scalar_bytes = 2, .gradient_bytes = 2, .state_bytes = 12};
    o.memory_gb_per_s = in.on.memory_gb_per_s * in.on.efficiency;
    o.sharded_optimizers = {false, true};
    o.ranked = 3;
    return o;
}

std::vector<method> methods(const setting& in, double refine_seconds) {
    const tune_options base = common(in);
    std::vector<method> all{};
    const auto add = [&](const char* name, auto change) {
        all.push_back({.name = name, .space = base});
        // The executor of pulse exchanges directly; other libraries have rings, which cross nodes least.
        if (all.size() > 1) { all.back().space.exchange = replica_exchange::ring; }
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
    // What pulse_plan chooses among, and pulse runs.
    add("any placement", [&](tune_options& o) {
        o.pipeline_degrees = {};
        o.exchange = replica_exchange::direct;
    });
    return all;
}

/// What a method came to; bytes of all devices together.
struct outcome {
    std::string name{};
    std::optional<tune_row> row{}; ///< of a method that the tuner knows
    double step_us{};              ///< 0 when there is no plan
    double samples_per_s{};
    double idle{}; ///< share of the step in which a device does not compute
    double pipeline_bytes{};
    double replica_bytes{};
    std::string plan{};
    std::string why{}; ///< when there is no plan
};

outcome tuned(const known_model& model, const setting& in, const method& by) {
    outcome out{.name = by.name};
    try {
        const tune_row row =
            tune([&](int size) { return analytic_costs(model.graph, in.on, size, 2); }, in.machine, by.space)
                .best_row();
        out.row = row;
        out.step_us = row.step_us;
        out.samples_per_s = row.samples_per_s;
        out.idle = row.bubble_ratio;
        out.pipeline_bytes = static_cast<double>(row.boundary_bytes + row.skip_bytes) * row.candidate.data_degree;
        out.replica_bytes = static_cast<double>(row.gradient_bytes) * row.candidate.data_degree;
        out.plan = to_text(row.candidate);
    } catch (const infeasible_error& e) { out.why = e.what(); }
    return out;
}

outcome sharded(const known_model& model, const setting& in, bool hybrid) {
    outcome out{.name = hybrid ? "FSDP, hybrid" : "FSDP, whole"};
    const tune_options base = common(in);
    const auto best =
        pulse_bench::tune_sharding([&](int size) { return analytic_costs(model.graph, in.on, size, 2); }, in.machine,
                                   {base.kept, base.memory_gb_per_s}, in.global_batch, hybrid);
    if (!best) {
        out.why = "no microbatch fits, or the devices do not divide the batch";
        return out;
    }
    out.step_us = best->step.step_us;
    out.samples_per_s = in.global_batch / best->step.step_us * 1e6;
    out.idle = 1 - best->step.compute_us / best->step.step_us;
    out.replica_bytes = static_cast<double>(best->step.sent_bytes) * in.machine.devices();
    out.plan = pulse_bench::to_text(best->how);
    return out;
}

/// Step time if all devices did nothing but the passes' arithmetic, evenly.
double ideal_us(const known_model& model, const setting& in, const tune_candidate& c) {
    double load = 0;
    for (const layer_cost& l : analytic_costs(model.graph, in.on, c.microbatch_size, 2).layers) { load += l.load_us(); }
    return load / c.microbatch_size * in.global_batch / in.machine.devices();
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
                      room, 100 * ideal / pulse_plan.step_us);
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
        room, linkless.samples_per_s / pulse_plan.samples_per_s, memoryless.samples_per_s / pulse_plan.samples_per_s);
    return text;
}

/// Prints what every method comes to. `found` has the outcomes with tuned degrees, which one pipeline of all devices is
/// compared with where a method is no pipeline.
ordered_json compare(const known_model& model, const setting& in, double refine_seconds, bool whole_pipeline,
                     std::vector<outcome>& found) {
    std::vector<method> all = methods(in, refine_seconds);
    if (!whole_pipeline) { found.assign(all.size(), {}); }
    std::vector<std::future<outcome>> others(all.size());
    for (std::size_t m = 0; m != all.size(); ++m) {
        if (whole_pipeline) {
            if (all[m].name == "data parallel" || all[m].name == "any placement") { continue; }
            all[m].space.pipeline_degrees = {in.machine.devices()};
        }
        if (m == 0) { // pulse, whose search has a limit of time, runs alone
            found[m] = tuned(model, in, all[m]);
        } else {
            others[m] = std::async(std::launch::async, [&, m] { return tuned(model, in, all[m]); });
        }
    }
    for (std::size_t m = 1; m != all.size(); ++m) {
        if (others[m].valid()) { found[m] = others[m].get(); }
    }
    if (!whole_pipeline) { found.push_back(sharded(model, in, false)); }
    if (!whole_pipeline && in.machine.nodes > 1) { found.push_back(sharded(model, in, true)); }

    std::printf("\n%s on %s (%g GB/s between two devices", std::string{model.name.view()}.c_str(),
                std::string{in.machine.name.view()}.c_str(), in.machine.intra_node.bandwidth_gb_per_s);
    if (in.machine.nodes > 1) { std::printf(", %g GB/s out of a node", in.machine.inter_node.bandwidth_gb_per_s); }
    std::printf("), global batch %d, %s\n", in.global_batch,
                whole_pipeline ? "one pipeline of all devices" : "degrees tuned");
    std::printf("%-22s %10s %10s %9s %12s %10s %11s  %s\n", "", "samples/s", "pulse is", "bubble", "act+skip GB",
                "pulse saves", "replicas GB", "plan");
    ordered_json json{{"model", std::string{model.name.view()}},
                      {"cluster", std::string{in.machine.name.view()}},
                      {"global_batch", in.global_batch},
                      {"degrees", whole_pipeline ? "one pipeline" : "tuned"},
                      {"methods", ordered_json::array()}};
    const outcome& ours = found.front();
    const outcome* rival = nullptr;
    for (const outcome& o : found) {
        ordered_json entry{{"method", o.name}};
        if (!(o.step_us > 0)) {
            std::printf("%-22s %s\n", o.name.c_str(), o.why.c_str());
            entry["infeasible"] = o.why;
        } else {
            const double ratio = ours.samples_per_s / o.samples_per_s;
            const double saved = o.pipeline_bytes > 0 ? 100 * (1 - ours.pipeline_bytes / o.pipeline_bytes) : 0.0;
            std::printf("%-22s %10.3f %9.2fx %8.1f%% %12.3f %10.1f%% %11.3f  %s\n", o.name.c_str(), o.samples_per_s,
                        ratio, 100 * o.idle, o.pipeline_bytes / 1e9, saved, o.replica_bytes / 1e9, o.plan.c_str());
            if (o.row) { entry["row"] = pulse_bench::json_of(*o.row); }
            entry["plan"] = o.plan;
            entry["step_us"] = o.step_us;
            entry["samples_per_s"] = o.samples_per_s;
            entry["pulse_speedup"] = ratio;
            entry["pulse_saves_percent"] = saved;
            const bool own = &o == &ours || o.name == "any placement";
            if (!own && (rival == nullptr || o.step_us < rival->step_us)) { rival = &o; }
        }
        json["methods"].push_back(entry);
    }
    if (!ours.row) { return json; }
    if (rival != nullptr) {
        const double over_rival = ours.samples_per_s / rival->samples_per_s;
        std::printf("    %.2fx over the best baseline, %s\n", over_rival, rival->name.c_str());
        json["best_baseline"] = rival->name;
        json["over_best_baseline"] = over_rival;
    }
    const outcome& relayed = found[1];
    if (!relayed.row) { return json; }
    const double ideal = ideal_us(model, in, ours.row->candidate);
    const double ratio = ours.samples_per_s / relayed.samples_per_s;
    const double saved = 100 * (1 - ours.pipeline_bytes / relayed.pipeline_bytes);
    if (ratio < throughput_claim) {
        const std::string why = binding(model, in, ours, all.front(), ideal, relayed.step_us);
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
                     {"claim", {{"speedup", throughput_claim}, {"saved_percent", volume_claim}}},
                     {"settings", ordered_json::array()}};
    for (const char* name : {"sd21", "uvit_h2", "hunyuan_dit_v12", "sdxl"}) {
        if (!options.model.empty() && options.model != name) { continue; }
        for (setting& in : settings()) {
            const auto has = [](const std::vector<std::string>& names, std::string_view one) {
                return std::find(names.begin(), names.end(), one) != names.end();
            };
            if (!options.clusters.empty() && !has(options.clusters, in.machine.name.view())) { continue; }
            if (!has(in.models, name)) { continue; }
            if (options.global_batch > 0) { in.global_batch = options.global_batch; }
            const known_model& model = *find_model(name);
            std::vector<outcome> found{};
            // Of several nodes one pipeline would have more stages than most of the models have layers.
            for (const bool whole_pipeline : {false, true}) {
                if (whole_pipeline && in.machine.nodes > 1) { continue; }
                all["settings"].push_back(compare(model, in, options.refine_seconds, whole_pipeline, found));
            }
        }
    }
    json.write(all);
}

} // namespace

int main(int argc, char** argv) {
    paper_options options{};
    CLI::App app{"Simulated throughput and volume of pulse's tuned plan against tuned baselines, on two to eight "
                 "cards that people own, on eight devices of a data centre and on four nodes.",
                 "bench_paper"};
    app.add_flag("--quick", options.quick, "one node and four, one model, small batch, no synthesis");
    app.add_option("--model", options.model, "only this one")
        ->check(CLI::IsMember({"sd21", "uvit_h2", "hunyuan_dit_v12", "sdxl"}));
    app.add_option("--cluster", options.clusters, "only these")
        ->check(CLI::IsMember({"8xrtx-4090", "4xrtx-4090", "2xrtx-4090", "2x4xrtx-4090", "8xv100-nvlink", "8xv100-pcie",
                               "8x910a", "4x8xv100-slow"}));
    app.add_option("--global-batch", options.global_batch,
                   "samples of a step; otherwise 16 of RTX cards, 128 of others, and 256 on four nodes")
        ->check(CLI::PositiveNumber);
    app.add_option("--refine", options.refine_seconds, "seconds of synthesis for each of pulse's best three; 0: none")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_option("--json", options.json, "also write the figures to this file");
    return pulse_bench::run_bench(app, argc, argv, [&] {
        if (options.quick) {
            options.model = "uvit_h2";
            options.clusters = {"8xv100-pcie", "4x8xv100-slow"};
            options.global_batch = 32;
            options.refine_seconds = 0;
        }
        run(options);
        return 0;
    });
}
