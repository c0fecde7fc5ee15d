// Simulates pulse's tuned plan against tuned baselines on consumer cards, eight devices of a data centre, four nodes
// with slow links between them, and PULSE's own clusters and models.
//   bench_paper [--quick] [--model NAME] [--cluster NAME...] [--global-batch N] [--refine SECONDS] [--json FILE]
// Every method is tuned over the same degrees, microbatch sizes and memory; see paper_methods, tune_block_pipeline,
// tune_sharding and tune_split for what each may choose.
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
#include <pulse/model/graph.hpp>
#include <pulse/nn/value_graph.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/tune/tuner.hpp>

#include "block_pipeline.hpp"
#include "domain_parallel.hpp"
#include "fully_sharded.hpp"
#include "json_output.hpp"
#include "paper_methods.hpp"
#include "paper_settings.hpp"
#include "run_bench.hpp"
#include "tuning_table.hpp"

namespace {

using nlohmann::ordered_json;
using namespace pulse;
using method = pulse_bench::paper_method;
using setting = pulse_bench::paper_setting;

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

/// The result of a method; bytes of all devices together.
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

cost_source costs_of(const graph_view& model, const setting& in) {
    return [&](int size) { return analytic_costs(model, in.on, size, 2); };
}

outcome outcome_of(std::string name, const tune_row& row) {
    outcome out{.name = std::move(name), .row = row};
    out.step_us = row.step_us;
    out.samples_per_s = row.samples_per_s;
    out.idle = row.bubble_ratio;
    out.pipeline_bytes = static_cast<double>(row.boundary_bytes + row.skip_bytes) * row.candidate.data_degree;
    out.replica_bytes = static_cast<double>(row.gradient_bytes) * row.candidate.data_degree;
    out.plan = to_text(row.candidate);
    return out;
}

outcome tuned(const graph_view& model, const setting& in, const method& by) {
    try {
        return outcome_of(by.name, tune(costs_of(model, in), in.machine, by.space).best_row());
    } catch (const infeasible_error& e) { return {.name = by.name, .why = e.what()}; }
}

outcome cut_by_blocks(const graph_view& model, const setting& in) {
    const std::string name = "1F1B, cut by blocks";
    const auto best = pulse_bench::tune_block_pipeline(costs_of(model, in), in.machine, pulse_bench::common_space(in));
    if (!best) { return {.name = name, .why = "no stages of as many blocks each fit"}; }
    return outcome_of(name, *best);
}

/// A stage of ZeRO over all devices; without a stage, hybrid: over the devices of each node. Tuned.
outcome sharded(const graph_view& model, const setting& in, std::optional<int> stage) {
    outcome out{.name = stage ? "ZeRO-" + std::to_string(*stage) : "FSDP, hybrid"};
    const tune_options base = pulse_bench::common_space(in);
    const auto best = pulse_bench::tune_sharding(costs_of(model, in), in.machine, {base.kept, base.memory_gb_per_s},
                                                 in.global_batch, !stage, stage);
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

/// Domain parallelism over the best of groups of 2, 4, ... devices.
outcome split_by_rows(const std::string& name, const graph_view& model, const setting& in) {
    outcome out{.name = "domain parallel", .why = "no group's microbatch fits, or groups do not divide the batch"};
    const tune_options base = pulse_bench::common_space(in);
    const auto needs = pulse_bench::use_paper_config(name, [](const auto& c) { return pulse_bench::row_needs_of(c); });
    for (const int group : base.pipeline_degrees) {
        const auto best = pulse_bench::tune_split(costs_of(model, in), needs, in.machine,
                                                  {base.kept, base.memory_gb_per_s}, in.global_batch, group);
        // Among equals the smallest group, which sends least.
        if (!best || (out.step_us > 0 && out.step_us <= 1.001 * best->step.step_us)) { continue; }
        out.step_us = best->step.step_us;
        out.samples_per_s = in.global_batch / best->step.step_us * 1e6;
        out.idle = 1 - (best->step.compute_us - best->wait_us) / best->step.step_us;
        out.pipeline_bytes = static_cast<double>(best->sent_bytes);
        out.replica_bytes = static_cast<double>(best->step.sent_bytes) * in.machine.devices();
        char waits[64];
        std::snprintf(waits, sizeof waits, "pictures over %d, waits %.1f %%, ", group,
                      100 * best->wait_us / best->step.step_us);
        out.plan = waits + pulse_bench::to_text(best->how);
    }
    return out;
}

/// Step time if all devices did only the passes' arithmetic, evenly divided.
double ideal_us(const graph_view& model, const setting& in, const tune_candidate& c) {
    double load = 0;
    for (const layer_cost& l : analytic_costs(model, in.on, c.microbatch_size, 2).layers) { load += l.load_us(); }
    return load / c.microbatch_size * in.global_batch / in.machine.devices();
}

/// Which limit keeps pulse's plan from the ideal step.
std::string binding(const graph_view& model, const setting& in, const outcome& pulse_plan, const method& by,
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

/// Prints the results of every method. `found` has the outcomes with tuned degrees; methods that are no pipeline enter
/// the comparison of single pipelines of all devices with these.
ordered_json compare(const std::string& name, const setting& in, double refine_seconds, bool whole_pipeline,
                     std::vector<outcome>& found) {
    const value_graph graph =
        pulse_bench::use_paper_config(name, [](const auto& config) { return value_graph_of(config); });
    const graph_view model = graph.view();
    std::vector<method> all = pulse_bench::paper_methods(in, refine_seconds);
    if (!whole_pipeline) { found.assign(all.size(), {}); }
    std::vector<std::future<outcome>> others(all.size());
    for (std::size_t m = 0; m != all.size(); ++m) {
        if (whole_pipeline) {
            if (all[m].name == "data parallel" || all[m].name == "any placement") { continue; }
            all[m].space.pipeline_degrees = {in.machine.devices()};
        }
        if (m == 0) { // pulse's search has a time limit, so it runs alone
            found[m] = tuned(model, in, all[m]);
        } else {
            others[m] = std::async(std::launch::async, [&, m] { return tuned(model, in, all[m]); });
        }
    }
    for (std::size_t m = 1; m != all.size(); ++m) {
        if (others[m].valid()) { found[m] = others[m].get(); }
    }
    if (!whole_pipeline) {
        found.push_back(cut_by_blocks(model, in));
        for (const int stage : {1, 2, 3}) { found.push_back(sharded(model, in, stage)); }
        if (in.machine.nodes > 1) { found.push_back(sharded(model, in, {})); }
        found.push_back(split_by_rows(name, model, in));
    }

    std::printf("\n%s on %s (%g GB/s between two devices", name.c_str(), in.machine.name.str().c_str(),
                in.machine.intra_node.bandwidth_gb_per_s);
    if (in.machine.nodes > 1) { std::printf(", %g GB/s out of a node", in.machine.inter_node.bandwidth_gb_per_s); }
    std::printf("), global batch %d, %s\n", in.global_batch,
                whole_pipeline ? "one pipeline of all devices" : "degrees tuned");
    std::printf("%-22s %10s %10s %9s %12s %10s %11s  %s\n", "", "samples/s", "pulse is", "bubble", "act+skip GB",
                "pulse saves", "replicas GB", "plan");
    ordered_json json{{"model", name},
                      {"cluster", in.machine.name.str()},
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
    const auto has = [](const auto& names, std::string_view one) {
        return std::find(names.begin(), names.end(), one) != names.end();
    };
    for (const std::string_view name : pulse_bench::paper_models) {
        if (!options.model.empty() && options.model != name) { continue; }
        for (setting& in : pulse_bench::paper_settings()) {
            if (!options.clusters.empty() && !has(options.clusters, in.machine.name.view())) { continue; }
            if (!has(in.models, name)) { continue; }
            if (options.global_batch > 0) { in.global_batch = options.global_batch; }
            std::vector<outcome> found{};
            // On several nodes one pipeline would have more stages than most of the models have layers.
            for (const bool whole_pipeline : {false, true}) {
                if (whole_pipeline && in.machine.nodes > 1) { continue; }
                all["settings"].push_back(
                    compare(std::string{name}, in, options.refine_seconds, whole_pipeline, found));
            }
        }
    }
    json.write(all);
}

} // namespace

int main(int argc, char** argv) {
    paper_options options{};
    CLI::App app{"Simulated throughput and volume of pulse's tuned plan against tuned baselines, on two to eight "
                 "cards that people own, on eight devices of a data centre, on four nodes and on the paper's clusters.",
                 "bench_paper"};
    app.add_flag("--quick", options.quick, "one node and two, one model, small batch, no synthesis");
    std::vector<std::string> clusters{};
    for (const setting& in : pulse_bench::paper_settings()) { clusters.push_back(in.machine.name.str()); }
    const auto& models = pulse_bench::paper_models;
    app.add_option("--model", options.model, "only this model")
        ->check(CLI::IsMember(std::vector<std::string>(models.begin(), models.end())));
    app.add_option("--cluster", options.clusters, "only these clusters")->check(CLI::IsMember(clusters));
    app.add_option("--global-batch", options.global_batch,
                   "samples of a step; by default 16 on RTX cards, 128 on other clusters of one node, 256 on two and "
                   "four nodes and 512 on eight")
        ->check(CLI::PositiveNumber);
    app.add_option("--refine", options.refine_seconds, "seconds of synthesis for each of pulse's best three; 0: none")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_option("--json", options.json, "also write the figures to this file");
    return pulse_bench::run_bench(app, argc, argv, [&] {
        if (options.quick) {
            options.model = "uvit_h2";
            options.clusters = {"8xv100-pcie", "2x4xrtx-4090"};
            options.global_batch = 16;
            options.refine_seconds = 0;
        }
        run(options);
        return 0;
    });
}
