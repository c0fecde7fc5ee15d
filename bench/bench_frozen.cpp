// Frozen networks in the bubbles of a pipeline, in DiffusionPipe's setting: nodes of eight A100-80GB, simulated.
//   bench_frozen [--quick] [--model NAME...] [--nodes N...] [--batch N...] [--refine SECONDS] [--markdown]
//                [--json FILE]
//   bench_frozen measure [--quick] [--markdown] [--json FILE]: thread ranks on this machine, measured and simulated.
// Every method is tuned over its own degrees, microbatches and memory.
// Exit status: 0 measured, 1 failed, 2 refused.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "frozen_measure.hpp"
#include "frozen_methods.hpp"
#include "frozen_setting.hpp"
#include "json_output.hpp"
#include "run_bench.hpp"
#include "text_table.hpp"

namespace {

using nlohmann::ordered_json;
using namespace pulse_bench;
using pulse::frozen_mode;

struct frozen_bench_options {
    bool quick{};
    std::vector<std::string> models{"sd21", "controlnet_sd15"};
    std::vector<int> nodes{1, 8};
    std::vector<int> batch_per_device{8};
    double refine_seconds{1.0};
    bool markdown{};
    std::string json{};
};

/// Every method of a setting, pulse's first.
std::vector<frozen_outcome> outcomes_of(const frozen_setting& in, double refine_seconds) {
    const auto costs_of = [&](int size) { return frozen_setting_costs(in, size); };
    const pulse::tune_options pipelines = frozen_space(in, refine_seconds);
    std::vector<frozen_outcome> found{};
    std::optional<pulse::tuning> ours{};
    found.push_back(tuned_outcome("pulse, in the bubbles", costs_of, in, pipelines, &ours));
    pulse::tune_options any = pipelines;
    any.pipeline_degrees = {};
    any.frozen = frozen_mode::tuned;
    found.push_back(tuned_outcome("pulse, any degrees", costs_of, in, any));
    if (ours) { found.push_back(greedy_on_same(in, pipelines, *ours)); }
    pulse::tune_options first = pipelines;
    first.frozen = frozen_mode::first;
    found.push_back(tuned_outcome("first on all ranks", costs_of, in, first));
    found.push_back(on_rank_0("on rank 0", in, pipelines));
    found.push_back(greedy_one_f_one_b(in, pipelines));
    choose_one_f_one_b(first);
    found.push_back(tuned_outcome("1F1B, first on all ranks", costs_of, in, first));
    found.push_back(on_rank_0("1F1B, on rank 0", in, first));
    first.pipeline_degrees = {1};
    first.placements = {pulse::placement::sequential};
    first.methods = {pulse::schedule_method::list};
    found.push_back(tuned_outcome("data parallel, inline", costs_of, in, first));
    found.push_back(sharded_outcome(in, first, false));
    if (in.machine.nodes > 1) { found.push_back(sharded_outcome(in, first, true)); }
    return found;
}

/// Microseconds that passes take for a sample, in microbatches of the fastest size.
double least_load_us(const frozen_setting& in) {
    double least_us = std::numeric_limits<double>::infinity();
    for (int size = 1; size <= std::min(in.global_batch, 64); size *= 2) {
        double load_us = 0;
        for (const auto& l : frozen_setting_costs(in, size).layers) { load_us += l.load_us(); }
        least_us = std::min(least_us, load_us / size);
    }
    return least_us;
}

ordered_json report(const frozen_setting& in, const std::vector<frozen_outcome>& found, bool markdown) {
    const double frozen_us = encoding_us(frozen_setting_costs(in, 1), in.global_batch);
    const double load_us = least_load_us(in) * in.global_batch;
    const double ideal_us = (load_us + frozen_us) / in.machine.devices();
    std::printf("\n%s on %d x 8 A100-80GB, global batch %d: frozen work is %.0f %% of the trained\n\n",
                in.model.c_str(), in.machine.nodes, in.global_batch, 100 * frozen_us / load_us);
    text_table table{{"method", "step ms", "samples/s", "pulse is", "idle", "plan"}, {}};
    ordered_json json{{"model", in.model},
                      {"devices", in.machine.devices()},
                      {"global_batch", in.global_batch},
                      {"ideal_us", ideal_us},
                      {"methods", ordered_json::array()}};
    const frozen_outcome& ours = found.front();
    for (const frozen_outcome& o : found) {
        if (!(o.step_us > 0)) {
            table.rows.push_back({o.method, "-", "-", "-", "-", o.why});
            json["methods"].push_back({{"method", o.method}, {"infeasible", o.why}});
            continue;
        }
        const double ratio = ours.step_us > 0 ? o.step_us / ours.step_us : 0;
        table.rows.push_back({o.method, text_of("%.1f", o.step_us / 1e3),
                              text_of("%.1f", in.global_batch / o.step_us * 1e6), text_of("%.3fx", ratio),
                              text_of("%.1f %%", 100 * o.idle), o.plan});
        json["methods"].push_back({{"method", o.method},
                                   {"step_us", o.step_us},
                                   {"samples_per_s", in.global_batch / o.step_us * 1e6},
                                   {"pulse_speedup", ratio},
                                   {"idle", o.idle},
                                   {"plan", o.plan}});
    }
    table.print(markdown);
    if (ours.step_us > 0) {
        std::printf(
            "\narithmetic binds: in the best microbatches, divided evenly, it takes %.1f ms, %.1f %% of pulse's step; "
            "devices are idle for %.1f %%, and no method can be more than %.3fx faster\n",
            ideal_us / 1e3, 100 * ideal_us / ours.step_us, 100 * ours.idle, ours.step_us / ideal_us);
    }
    return json;
}

/// Prints how much faster pulse is than each method in each setting.
void summarise(const ordered_json& settings, bool markdown) {
    text_table table{{"pulse is faster than"}, {}};
    for (const auto& s : settings) {
        table.heads.push_back(s["model"].get<std::string>() + ", " + std::to_string(s["devices"].get<int>()) +
                              " devices, batch " + std::to_string(s["global_batch"].get<int>()));
    }
    for (const auto& s : settings) {
        for (const auto& m : s["methods"]) {
            const auto method = m["method"].get<std::string>();
            const auto has = [&](const auto& row) { return row.front() == method; };
            if (std::any_of(table.rows.begin(), table.rows.end(), has)) { continue; }
            std::vector<std::string> row{method};
            for (const auto& other : settings) {
                row.emplace_back("-");
                for (const auto& o : other["methods"]) {
                    if (o["method"] != method || !o.contains("pulse_speedup")) { continue; }
                    row.back() = text_of("%.3fx", o["pulse_speedup"].get<double>());
                }
            }
            table.rows.push_back(std::move(row));
        }
    }
    std::puts("");
    table.print(markdown);
}

void run(const frozen_bench_options& options) {
    json_output json{options.json};
    ordered_json all{{"format", "pulse-bench-frozen-setting/1"}, {"settings", ordered_json::array()}};
    for (const std::string& model : options.models) {
        for (const int nodes : options.nodes) {
            for (const int batch : options.batch_per_device) {
                const frozen_setting in = frozen_setting_of(model, nodes, batch);
                all["settings"].push_back(report(in, outcomes_of(in, options.refine_seconds), options.markdown));
            }
        }
    }
    summarise(all["settings"], options.markdown);
    json.write(all);
}

} // namespace

int main(int argc, char** argv) {
    frozen_bench_options options{};
    CLI::App app{"Frozen networks in the bubbles against encoding first, DiffusionPipe's filling and data parallelism",
                 "bench_frozen"};
    app.fallthrough();
    auto* measured = app.add_subcommand(
        "measure", "measured and simulated steps of thread ranks on this machine whose layers sleep");
    app.add_flag("--quick", options.quick, "one node, one small batch, no synthesis; with measure: short layers");
    app.add_option("--model", options.models, "sd21, controlnet_sd15 (default: both)")
        ->check(CLI::IsMember({"sd21", "controlnet_sd15"}));
    app.add_option("--nodes", options.nodes, "numbers of nodes of eight devices (1 8)")->check(CLI::Range(1, 8));
    app.add_option("--batch", options.batch_per_device, "samples of a step for each device (8)")
        ->check(CLI::Range(1, 256));
    app.add_option("--refine", options.refine_seconds, "seconds of synthesis for each of pulse's best three; 0: none")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_flag("--markdown", options.markdown, "print tables as Markdown");
    app.add_option("--json", options.json, "also write the figures to this file");
    return run_bench(app, argc, argv, [&] {
        if (measured->parsed()) {
            json_output json{options.json};
            json.write({{"format", "pulse-bench-frozen-measured/1"},
                        {"rows", measure_frozen(options.quick, options.markdown)}});
            return 0;
        }
        if (options.quick) {
            options.models = {"controlnet_sd15"};
            options.nodes = {1};
            options.batch_per_device = {2};
            options.refine_seconds = 0;
        }
        run(options);
        return 0;
    });
}
