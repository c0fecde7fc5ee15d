#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>

#include "schedule_baselines.hpp"
#include "schedule_grid.hpp"

namespace pulse_bench {

inline constexpr std::string_view gaps_format = "pulse-bench-gaps/2";

/// One instance of the grid with its results.
struct gaps_row {
    /// Has no problem where the row was read from a file.
    grid_instance instance{};
    double makespan_us{};
    double bound_us{};
    /// The lower bound before the synthesizer runs.
    double first_bound_us{};
    double seconds{};
    /// In the order of grid_baselines; none where the method is not defined for the instance.
    std::array<std::optional<baseline_run>, grid_baselines.size()> baselines{};

    [[nodiscard]] double gap_percent() const { return 100 * pulse::gap_of(makespan_us, bound_us); }
    [[nodiscard]] double first_gap_percent() const { return 100 * pulse::gap_of(makespan_us, first_bound_us); }
    [[nodiscard]] bool proved() const { return makespan_us <= bound_us * (1 + 1e-9); }
};

/// The rows of one run, or of several merged ones, with their common settings.
struct gaps_run {
    double seconds{};
    std::string solver{};
    int sample{1};
    /// "i/n" of every run in it.
    std::vector<std::string> parts{};
    std::vector<gaps_row> rows{};
    /// Phases of the synthesizer that were left out.
    std::set<std::string, std::less<>> without{};
};

/// The place of an instance in the grid.
[[nodiscard]] inline auto grid_order(const grid_instance& i) {
    return std::tuple{i.devices, i.waves, !i.split, i.limited, i.microbatches, i.costs, i.latency_percent};
}

[[nodiscard]] inline nlohmann::ordered_json to_json(const gaps_row& r) {
    const grid_instance& i = r.instance;
    nlohmann::ordered_json out{{"name", i.name()},
                               {"pipeline_degree", i.devices},
                               {"waves", i.waves},
                               {"split_backward", i.split},
                               {"memory", i.limited ? "1f1b" : "free"},
                               {"microbatches", i.microbatches},
                               {"costs", name_of(i.costs)},
                               {"latency_percent", i.latency_percent},
                               {"makespan_us", r.makespan_us},
                               {"lower_bound_us", r.bound_us},
                               {"first_lower_bound_us", r.first_bound_us},
                               {"gap_percent", r.gap_percent()},
                               {"proved", r.proved()},
                               {"seconds", r.seconds}};
    auto& others = out["baselines"] = nlohmann::ordered_json::object();
    for (std::size_t b = 0; b != grid_baselines.size(); ++b) {
        if (!r.baselines[b]) { continue; }
        others[std::string{grid_baselines[b].key}] = {{"makespan_us", r.baselines[b]->makespan_us},
                                                      {"over_limit", r.baselines[b]->over_limit}};
    }
    return out;
}

/// Reads the run in the file `path`. Throws input_error, naming file and field.
[[nodiscard]] inline gaps_run read_gaps(const std::string& path) {
    const auto value = pulse::io::parse_json(pulse::io::read_file(path), path);
    const pulse::io::json_field root{value, {path, "the file", gaps_format}};
    if (root["format"].text() != gaps_format) { root["format"].fail("must be '" + std::string{gaps_format} + "'"); }
    gaps_run run{root["seconds"].time(), root["solver"].text(), root["sample"].count(), {}, {}, {}};
    for (const auto& part : root["parts"].list()) { run.parts.push_back(part.text()); }
    if (root.has("without")) {
        for (const auto& phase : root["without"].list()) { run.without.insert(phase.text()); }
    }
    for (const auto& one : root["instances"].list()) {
        gaps_row row{};
        grid_instance& i = row.instance;
        i.devices = one["pipeline_degree"].count();
        i.waves = one["waves"].count();
        i.split = one["split_backward"].boolean();
        i.limited = one["memory"].one_of<bool>({{"free", false}, {"1f1b", true}});
        i.microbatches = one["microbatches"].count();
        i.costs = one["costs"].one_of<cost_set>({{name_of(cost_set::uniform), cost_set::uniform},
                                                 {name_of(cost_set::random), cost_set::random},
                                                 {name_of(cost_set::u_shaped), cost_set::u_shaped},
                                                 {name_of(cost_set::heavy), cost_set::heavy}});
        i.latency_percent = static_cast<int>(one["latency_percent"].bytes());
        row.makespan_us = one["makespan_us"].time();
        row.bound_us = one["lower_bound_us"].time();
        row.first_bound_us = one["first_lower_bound_us"].time();
        row.seconds = one["seconds"].time();
        const auto others = one["baselines"];
        for (std::size_t b = 0; b != grid_baselines.size(); ++b) {
            const std::string key{grid_baselines[b].key};
            if (!others.has(key.c_str())) { continue; }
            const auto other = others[key.c_str()];
            row.baselines[b] = baseline_run{other["makespan_us"].time(), other["over_limit"].time()};
        }
        run.rows.push_back(std::move(row));
    }
    return run;
}

/// Merges the runs of several files in the order of the grid. Throws input_error, naming the file, if it cannot be
/// read, was run with other settings than the first, or repeats an instance of another.
[[nodiscard]] inline gaps_run merge_gaps(const std::vector<std::string>& paths) {
    gaps_run all{};
    for (const auto& path : paths) {
        gaps_run one = read_gaps(path);
        const auto differs = [&](const char* field) {
            throw pulse::input_error(path + ": " + field + " must be that of " + paths.front());
        };
        if (&path == &paths.front()) {
            all = std::move(one);
            continue;
        }
        if (one.seconds != all.seconds) { differs("seconds"); }
        if (one.solver != all.solver) { differs("solver"); }
        if (one.sample != all.sample) { differs("sample"); }
        if (one.without != all.without) { differs("without"); }
        all.parts.insert(all.parts.end(), one.parts.begin(), one.parts.end());
        for (auto& row : one.rows) {
            for (const auto& other : all.rows) {
                if (grid_order(row.instance) == grid_order(other.instance)) {
                    throw pulse::input_error(path + ": " + row.instance.name() + " is in another file too");
                }
            }
            all.rows.push_back(std::move(row));
        }
    }
    std::sort(all.rows.begin(), all.rows.end(),
              [](const gaps_row& a, const gaps_row& b) { return grid_order(a.instance) < grid_order(b.instance); });
    return all;
}

/// i and n of "i/n", 1 <= i <= n; none for any other text.
[[nodiscard]] inline std::optional<std::pair<int, int>> part_of(const std::string& text) {
    const auto slash = text.find('/');
    if (slash == std::string::npos) { return std::nullopt; }
    const auto number = [](std::string_view digits) {
        int value = 0;
        if (digits.empty() || digits.size() > 6) { return 0; }
        for (const char c : digits) {
            if (c < '0' || c > '9') { return 0; }
            value = 10 * value + (c - '0');
        }
        return value;
    };
    const int i = number(std::string_view{text}.substr(0, slash));
    const int n = number(std::string_view{text}.substr(slash + 1));
    if (i < 1 || i > n) { return std::nullopt; }
    return std::pair{i, n};
}

/// The missing parts: for "1/3 3/3", "2/3".
[[nodiscard]] inline std::vector<std::string> missing_parts(const std::vector<std::string>& parts) {
    std::map<int, std::map<int, int>> seen{}; // by n, then by i: how often
    for (const auto& text : parts) {
        if (const auto part = part_of(text)) { ++seen[part->second][part->first]; }
    }
    std::vector<std::string> missing{};
    for (auto& [n, times] : seen) {
        int most = 0;
        for (const auto& [i, count] : times) { most = std::max(most, count); }
        for (int i = 1; i <= n; ++i) {
            if (times[i] < most) { missing.push_back(std::to_string(i) + "/" + std::to_string(n)); }
        }
    }
    return missing;
}

} // namespace pulse_bench
