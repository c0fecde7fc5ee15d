#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pulse/hardware/clusters.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/tune/tuner.hpp>
#include <pulse/zoo/known_models.hpp>

#include "json_output.hpp"
#include "plan_parts.hpp"
#include "tuning_table.hpp"

namespace pulse_bench {

namespace {

using nlohmann::ordered_json;

struct tuner_options {
    std::string model{"sdxl"};
    std::string device{"a100-80gb"};
    std::string cluster{"8x8xa100"};
    int global_batch{512};
    bool whole_space{};
    std::string json{};
};

struct timed_tuning {
    pulse::tuning made{};
    double seconds{};
};

timed_tuning timed(const pulse::known_model& model, const pulse::device& device, const pulse::cluster& machine,
                   const pulse::tune_options& options) {
    const auto start = std::chrono::steady_clock::now();
    timed_tuning out{
        pulse::tune([&](int size) { return pulse::analytic_costs(model.graph, device, size, 2); }, machine, options),
        0};
    out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return out;
}

void run(const tuner_options& options) {
    const pulse::known_model* model = pulse::find_model(options.model);
    if (model == nullptr) { throw CLI::ValidationError("--model", "unknown model " + options.model); }
    const pulse::device* device = pulse::find_device(options.device);
    if (device == nullptr) { throw CLI::ValidationError("--device", "unknown device " + options.device); }
    const pulse::cluster* named = pulse::find_cluster(options.cluster);
    if (named == nullptr) { throw CLI::ValidationError("--cluster", "unknown cluster " + options.cluster); }
    const pulse::cluster& machine = *named;
    json_output json{options.json};

    pulse::tune_options ask{};
    ask.global_batch = options.global_batch;
    ask.kept = pulse::adamw_memory(2);
    ask.memory_gb_per_s = device->memory_gb_per_s * device->efficiency;

    std::printf("%s on %d x %d %s (%s), global batch %d\n", options.model.c_str(), machine.nodes,
                machine.devices_per_node, options.device.c_str(), options.cluster.c_str(), options.global_batch);
    const timed_tuning quick = timed(*model, *device, machine, ask);
    print_tuning(quick.made, 10);
    std::printf("    tuning took %.2f s, target <= 10: %s\n", quick.seconds, quick.seconds <= 10 ? "met" : "missed");
    ordered_json all{{"format", "pulse-bench-plan-tuner/1"},
                     {"model", options.model},
                     {"device", options.device},
                     {"cluster", options.cluster},
                     {"devices", machine.devices()},
                     {"global_batch", options.global_batch},
                     {"seconds", quick.seconds},
                     {"candidates", quick.made.rows.size()},
                     {"evaluations", quick.made.evaluations},
                     {"best", ordered_json::array()}};
    for (std::size_t k = 0; k != quick.made.ranking.size() && k != 10; ++k) {
        all["best"].push_back(json_of(quick.made.rows[quick.made.ranking[k]]));
    }
    if (options.whole_space) {
        // Every candidate, each with more rules than the tuner takes time for.
        ask.prune = false;
        ask.list = {.effort = pulse::list_effort::rules, .improved_runs = 1, .patience = 1, .explored_runs = 0};
        const timed_tuning whole = timed(*model, *device, machine, ask);
        const double behind = 100 * (quick.made.best_row().step_us / whole.made.best_row().step_us - 1);
        std::printf("\nthe whole space with more search in each, %zu schedules in %.1f s; its best:\n",
                    whole.made.evaluations, whole.seconds);
        print_row(whole.made.best_row());
        std::printf("    the tuner's choice is %.3f %% behind it, target <= 2: %s\n", behind,
                    behind <= 2 ? "met" : "missed");
        all["whole_space"] = {{"seconds", whole.seconds},
                              {"evaluations", whole.made.evaluations},
                              {"best", json_of(whole.made.best_row())},
                              {"behind_percent", behind}};
    }
    json.write(all);
}

} // namespace

void add_tuner_part(CLI::App& app) {
    auto options = std::make_shared<tuner_options>();
    CLI::App& part =
        *app.add_subcommand("tuner", "time of the tuner on a large cluster, and its choice against the whole space");
    part.add_option("--model", options->model, "a model of the zoo")->capture_default_str();
    part.add_option("--device", options->device, "a device of the list of devices")->capture_default_str();
    part.add_option("--cluster", options->cluster, "a cluster of the list of clusters")->capture_default_str();
    part.add_option("--global-batch", options->global_batch)->check(CLI::PositiveNumber)->capture_default_str();
    part.add_flag("--whole-space", options->whole_space, "evaluate every candidate too, which takes minutes");
    part.add_option("--json", options->json, "write the results to this file");
    part.callback([options] { run(*options); });
}

} // namespace pulse_bench
