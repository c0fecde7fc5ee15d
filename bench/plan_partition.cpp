#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pulse/model/graph_of.hpp>
#include <pulse/partition/merge_layers.hpp>
#include <pulse/partition/report.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/json.hpp>
#include <pulse/zoo/sdxl.hpp>

#include "json_output.hpp"
#include "plan_parts.hpp"
#include "statistics.hpp"

namespace pulse_bench {

namespace {

using nlohmann::ordered_json;

/// The skips of a random model. Fewer skips leave more regions closed: without any, all n^2/2. `equal` and `heavy` have
/// none either, and equal layers; in `heavy` the middle one takes as long as all others together.
enum class family { dense, fan_out, crossing, sparse, none, equal, heavy };

struct named_family {
    family kind{};
    const char* name{};
    int most_layers{5000};   ///< larger rows are left out: they take too long
    double least_slack{0.0}; ///< replaces a smaller slack of the whole run
};

constexpr named_family families[]{{family::dense, "dense"},
                                  {family::fan_out, "fan-out"},
                                  {family::crossing, "crossing"},
                                  {family::sparse, "sparse"},
                                  {family::none, "none"},
                                  {family::equal, "equal", 1000},
                                  {family::heavy, "heavy", 1000},
                                  {family::none, "slack 0.1", 1000, 0.1},
                                  {family::none, "slack 0.5", 2000, 0.5}};

struct partition_options {
    int repeats{5};
    double slack{0.0};
    std::vector<int> layers{100, 200, 500, 1000, 2000};
    std::string profile{};
    int devices{8};
    bool quick{};
    std::string json{};
};

/// n random layers: times log-normal, so that some are ten times as heavy as most, and outputs of 16 sizes.
pulse::cost_table random_model(int n, family kind, unsigned seed) {
    std::mt19937 draw{seed};
    std::normal_distribution<double> normal{0.0, 1.0};
    pulse::cost_table costs{};
    for (int l = 0; l != n; ++l) {
        pulse::layer_cost layer{};
        layer.forward_us = 30.0 * std::exp(0.7 * normal(draw));
        layer.backward_input_us = layer.forward_us;
        layer.backward_weight_us = layer.forward_us;
        layer.output_bytes = static_cast<std::int64_t>(1 + draw() % 16U) << 16U;
        costs.layers.push_back(layer);
    }
    const auto edge = [&costs, n](int from, int to) {
        if (from < to && to < n) { costs.skips.push_back({from, to, 1 << 20}); }
    };
    const auto few = [&](int count) {
        for (int k = 0; k != count; ++k) {
            const int from = (2 * k + 1) * n / (4 * count + 2);
            edge(from, n - 1 - from);
        }
    };
    switch (kind) {
    case family::dense:
        for (int l = 0; 2 * l + 3 < n; ++l) { edge(l, n - 1 - l); }
        break;
    case family::fan_out:
        for (int l = 0; 2 * l + 3 < n; l += 2) {
            edge(l, n - 1 - l);
            edge(l, n - 2 - l);
        }
        break;
    case family::crossing: // pairs of crossing skips, with free layers between pairs
        for (int l = 0; 2 * l + 4 < n; l += 8) {
            edge(l, n - 3 - l);
            edge(l + 2, n - 1 - l);
        }
        break;
    case family::sparse: few(8); break;
    case family::none: break;
    case family::equal:
    case family::heavy:
        for (pulse::layer_cost& layer : costs.layers) {
            layer.forward_us = layer.backward_input_us = layer.backward_weight_us = 30.0;
            layer.output_bytes = 1 << 20;
        }
        if (kind == family::heavy) { costs.layers[static_cast<std::size_t>(n) / 2].forward_us = 90.0 * n; }
        break;
    }
    return costs;
}

struct timing {
    double ms{};
    double worst_ms{};
    double balance{};
};

/// Time of one cut over `repeats` different draws of `model(seed)`. The first, cold run does not count.
template <class Model>
timing time_cuts(const Model& model, int devices, int waves, const partition_options& options) {
    std::vector<double> ms{};
    timing out{};
    for (int repeat = -1; repeat != options.repeats; ++repeat) {
        const pulse::cost_table costs = model(static_cast<unsigned>(std::max(0, repeat)));
        const auto start = std::chrono::steady_clock::now();
        const pulse::partition cut = pulse::skip_aware_partition(costs, devices, waves, {.slack = options.slack});
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
        if (repeat < 0) { continue; }
        ms.push_back(took.count());
        out.balance += pulse::report_of(cut, costs).balance / options.repeats;
    }
    out.ms = median(ms);
    out.worst_ms = *std::max_element(ms.begin(), ms.end());
    return out;
}

void measure_growth(const partition_options& options, ordered_json& all) {
    std::printf("cutting random models, one wave, slack %g: median and worst of %d draws\n", options.slack,
                options.repeats);
    std::printf("%10s %8s %8s %12s %12s %9s %8s\n", "skips", "layers", "devices", "median ms", "worst ms", "balance",
                "growth");
    auto& rows = all["growth"] = ordered_json::array();
    for (const named_family& of : families) {
        double before_ms = 0.0;
        int before_layers = 0;
        int before_devices = 0;
        partition_options own = options;
        own.slack = std::max(options.slack, of.least_slack);
        for (const int n : options.layers) {
            if (n > of.most_layers) { continue; }
            const int devices = n < 200 ? 8 : n < 1000 ? 32 : 64;
            const timing t =
                time_cuts([&](unsigned seed) { return random_model(n, of.kind, seed + 1); }, devices, 1, own);
            std::printf("%10s %8d %8d %12.2f %12.2f %9.4f", of.name, n, devices, t.ms, t.worst_ms, t.balance);
            // The exponent of the time in the number of layers, between consecutive rows with as many devices.
            const bool comparable = before_devices == devices && n > before_layers;
            const double growth =
                comparable ? std::log(t.ms / before_ms) / std::log(static_cast<double>(n) / before_layers) : 0.0;
            if (comparable) { std::printf(" %8s", ("n^" + std::to_string(growth).substr(0, 4)).c_str()); }
            std::printf("\n");
            ordered_json row{{"skips", of.name},    {"layers", n},       {"devices", devices},
                             {"slack", own.slack},  {"median_ms", t.ms}, {"worst_ms", t.worst_ms},
                             {"balance", t.balance}};
            if (comparable) { row["growth"] = growth; }
            rows.push_back(row);
            before_ms = t.ms;
            before_layers = n;
            before_devices = devices;
        }
    }
}

void judge(ordered_json& all, const char* what, double ms, double target_ms) {
    std::printf("%s: %.2f ms, target under %g ms: %s\n", what, ms, target_ms, ms < target_ms ? "met" : "missed");
    all["targets"].push_back({{"what", what}, {"ms", ms}, {"target_ms", target_ms}, {"met", ms < target_ms}});
}

/// Measures the finest backbone of the zoo, or the given profile.
void measure_model(const partition_options& options, ordered_json& all) {
    static constexpr auto finest = pulse::graph_of<pulse::sdxl>();
    const bool profiled = !options.profile.empty();
    const pulse::cost_table costs =
        profiled ? pulse::load_profile(options.profile) : pulse::analytic_costs(finest.view(), pulse::a100_80gb, 1, 2);
    const auto layers = static_cast<int>(costs.layers.size());
    std::printf("%s, %d layers, %d devices\n%8s %12s %12s %9s\n", costs.model.str().c_str(), layers, options.devices,
                "waves", "median ms", "worst ms", "balance");
    auto& rows = all["model"] = ordered_json::array();
    for (int waves = 1; waves <= 3 && 2 * options.devices * waves <= layers; ++waves) {
        // As the tuner cuts it.
        const std::size_t most = waves < 2 ? costs.layers.size() : 256 / static_cast<std::size_t>(waves);
        const pulse::cost_table searched = pulse::merge_layers(costs, most).costs;
        const timing t = time_cuts([&searched](unsigned) { return searched; }, options.devices, waves, options);
        std::printf("%8d %12.2f %12.2f %9.4f\n", waves, t.ms, t.worst_ms, t.balance);
        rows.push_back({{"waves", waves}, {"median_ms", t.ms}, {"worst_ms", t.worst_ms}, {"balance", t.balance}});
        if (!profiled && waves == 1) { judge(all, "sdxl at P=8", t.worst_ms, 10); }
    }
}

void measure(const partition_options& given) {
    partition_options options = given;
    json_output json{options.json};
    if (options.quick) {
        options.layers = {40, 80};
        options.repeats = 1;
        std::printf("quick run: the figures mean nothing\n");
    }
    ordered_json all{{"format", "pulse-bench-partition/1"}, {"repeats", options.repeats}, {"slack", options.slack}};
    all["targets"] = ordered_json::array();
    if (options.profile.empty()) {
        measure_growth(options, all);
        double worst = 0;
        for (const ordered_json& row : all["growth"]) {
            const bool random = row["skips"] != "equal" && row["skips"] != "heavy";
            if (row["layers"] == 1000 && random && row["slack"] == options.slack) {
                worst = std::max(worst, row["worst_ms"].get<double>());
            }
        }
        if (worst > 0) { judge(all, "1,000 random layers at P=64, slowest family at the run's slack", worst, 1000); }
    }
    measure_model(options, all);
    json.write(all);
}

} // namespace

void add_partition_part(CLI::App& app) {
    auto options = std::make_shared<partition_options>();
    CLI::App* part = app.add_subcommand("partition", "growth of the partitioner's time with the number of layers");
    part->add_option("--repeats", options->repeats, "draws per row (5)")->check(CLI::Range(1, 1000));
    part->add_option("--slack", options->slack, "load that may be traded for bytes (0)")->check(CLI::Range(0.0, 10.0));
    part->add_option("--layers", options->layers,
                     "numbers of layers (100 200 500 1000 2000); 8 devices under 200, 32 under 1000, else 64")
        ->check(CLI::Range(16, 5000));
    part->add_option("--profile", options->profile,
                     "time this profile with 1, 2 and 3 waves instead of random models and sdxl");
    part->add_option("--devices", options->devices, "devices for the model or profile (8)")->check(CLI::Range(1, 1024));
    part->add_flag("--quick", options->quick, "small models once, to see that it runs");
    part->add_option("--json", options->json, "also write the figures to this file");
    part->callback([options] { measure(*options); });
}

} // namespace pulse_bench
