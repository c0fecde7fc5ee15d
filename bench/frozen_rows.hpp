#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>
#include <pulse/schedule/fill/fill_schedule.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/validate_fill.hpp>

#include "text_table.hpp"

namespace pulse_bench {

inline constexpr std::string_view frozen_format = "pulse-bench-frozen/3";

/// Passes and the frozen work to do beside them.
struct frozen_case {
    std::string group{};
    std::string name{};
    pulse::schedule_problem problem{};
    pulse::frozen_work work{};
    int devices{};
};

struct frozen_row {
    std::string group{};
    std::string name{};
    int devices{};
    double makespan_us{};
    double bound_us{};
    /// Makespan of the passes without frozen work.
    double passes_us{};
    double bubble_without{};
    double bubble{};
    /// Step when all ranks encode equal shares, none of them idle, before the pipeline starts.
    double first_us{};
    /// Step when the first rank encodes everything before the pipeline starts.
    double first_rank_us{};
    /// Processor time of filling alone.
    double seconds{};

    [[nodiscard]] double gap_percent() const { return 100 * pulse::gap_of(makespan_us, bound_us); }
    /// The gap without the passes' own distance from the bound, which no filling shortens.
    [[nodiscard]] double filling_gap_percent() const {
        return 100 * pulse::gap_of(makespan_us, std::max(bound_us, passes_us));
    }
    [[nodiscard]] double gain() const { return first_us / makespan_us; }
    /// What most of the gap is due to.
    [[nodiscard]] const char* binds() const { return 2 * filling_gap_percent() < gap_percent() ? "passes" : "filling"; }
};

/// Raises the memory limits by room for three of the largest tasks at a time.
inline void give_room(pulse::schedule_problem& problem, const pulse::frozen_work& work) {
    std::int64_t most = 0;
    for (const auto& c : work.components) {
        for (const auto& l : c.layers) { most = std::max(most, l.live_bytes * c.max_chunk); }
    }
    for (auto& limit : problem.memory_limit_bytes) { limit += 3 * most; }
}

/// Fills frozen work into passes that are already synthesized, and validates the result.
[[nodiscard]] inline frozen_row measure_frozen(const frozen_case& of, const pulse::synthesis& alone) {
    auto problem = of.problem;
    give_room(problem, of.work);
    const std::clock_t start = std::clock();
    const auto filled = pulse::fill_schedule(problem, alone.best, of.work, alone.lower_bound_us);
    frozen_row row{of.group, of.name, of.devices};
    row.seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    pulse::validate_fill(problem, of.work, filled.passes, filled.tasks);
    row.makespan_us = filled.makespan_us();
    row.passes_us = alone.makespan_us;
    row.bound_us = filled.lower_bound_us;
    if (row.makespan_us < row.bound_us * (1 - 1e-9)) {
        throw std::runtime_error(of.name + ": the makespan is below the bound");
    }
    double busy = 0;
    for (const double b : pulse::busy_us(problem)) { busy += b; }
    double encoding = 0;
    double encoding_alone = 0;
    for (const auto& c : of.work.components) { encoding_alone += pulse::least_work_us(c, of.work.samples); }
    for (const auto& list : filled.tasks) {
        for (const auto& t : list) { encoding += t.end_us - t.start_us; }
    }
    row.first_us = alone.makespan_us + encoding_alone / of.devices;
    row.first_rank_us = alone.makespan_us + encoding_alone;
    row.bubble_without = 1 - busy / (of.devices * alone.makespan_us);
    row.bubble = std::max(0.0, 1 - (busy + encoding) / (of.devices * row.makespan_us)); // sums are not exact
    return row;
}

inline void print_row(const frozen_row& r) {
    std::printf("%-46s %10.0f %10.0f %7.3f%% bubble %6.2f%% -> %6.2f%% %6.3fx %8.3f s\n", r.name.c_str(), r.makespan_us,
                r.bound_us, r.gap_percent(), 100 * r.bubble_without, 100 * r.bubble, r.gain(), r.seconds);
}

struct frozen_summary {
    int count{};
    double mean{};
    double worst{};
    double filling_mean{};
    double filling_worst{};
    double bubble{};
    double least_gain{1e300};
    double gain{};
    double most_gain{};
    double most_over_rank{};
    double seconds{};
};

[[nodiscard]] inline frozen_summary summarise(const std::vector<frozen_row>& rows,
                                              const std::function<bool(const frozen_row&)>& in) {
    frozen_summary s{};
    for (const auto& r : rows) {
        if (!in(r)) { continue; }
        ++s.count;
        s.mean += r.gap_percent();
        s.worst = std::max(s.worst, r.gap_percent());
        s.filling_mean += r.filling_gap_percent();
        s.filling_worst = std::max(s.filling_worst, r.filling_gap_percent());
        s.bubble += 100 * r.bubble;
        s.gain += r.gain();
        s.least_gain = std::min(s.least_gain, r.gain());
        s.most_gain = std::max(s.most_gain, r.gain());
        s.most_over_rank = std::max(s.most_over_rank, r.first_rank_us / r.makespan_us);
        s.seconds = std::max(s.seconds, r.seconds);
    }
    if (s.count != 0) { s.mean /= s.count, s.filling_mean /= s.count, s.bubble /= s.count, s.gain /= s.count; }
    return s;
}

/// Prints the cases that are farthest from their bounds, and what binds there.
inline void print_worst(std::vector<frozen_row> rows, bool markdown) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const frozen_row& a, const frozen_row& b) { return a.gap_percent() > b.gap_percent(); });
    text_table table{{"worst cases", "gap to the bound", "of filling", "binds"}, {}};
    for (const char* what : {"passes", "filling"}) {
        int shown = 0;
        for (const auto& r : rows) {
            if (std::string_view{what} != r.binds() || r.gap_percent() < 0.01 || ++shown > 5) { continue; }
            table.rows.push_back(
                {r.name, text_of("%.2f %%", r.gap_percent()), text_of("%.2f %%", r.filling_gap_percent()), what});
        }
    }
    if (table.rows.empty()) { return; }
    std::puts("");
    table.print(markdown);
}

/// Prints the rows by group and P, and returns their figures.
[[nodiscard]] inline nlohmann::ordered_json report_frozen(const std::vector<frozen_row>& rows, bool markdown) {
    text_table table{{"frozen", "P", "instances", "gap to the bound, mean", "worst", "of filling, mean", "worst",
                      "bubble", "over encoding first on all", "worst", "best", "over rank 0, best", "s, most"},
                     {}};
    nlohmann::ordered_json all{{"format", frozen_format}};
    auto& lines = all["groups"] = nlohmann::ordered_json::array();
    const auto add = [&](const std::string& group, const std::string& devices,
                         const std::function<bool(const frozen_row&)>& in) {
        const auto s = summarise(rows, in);
        if (s.count == 0) { return; }
        table.rows.push_back({group, devices, std::to_string(s.count), text_of("%.2f %%", s.mean),
                              text_of("%.2f %%", s.worst), text_of("%.2f %%", s.filling_mean),
                              text_of("%.2f %%", s.filling_worst), text_of("%.2f %%", s.bubble),
                              text_of("%.3fx", s.gain), text_of("%.3fx", s.least_gain), text_of("%.3fx", s.most_gain),
                              text_of("%.2fx", s.most_over_rank), text_of("%.3f", s.seconds)});
        lines.push_back({{"group", group},
                         {"pipeline_degree", devices},
                         {"instances", s.count},
                         {"mean_gap_percent", s.mean},
                         {"worst_gap_percent", s.worst},
                         {"mean_gap_percent_of_filling", s.filling_mean},
                         {"worst_gap_percent_of_filling", s.filling_worst},
                         {"mean_bubble_percent", s.bubble},
                         {"mean_over_first", s.gain},
                         {"least_over_first", s.least_gain},
                         {"most_over_first", s.most_gain},
                         {"most_over_first_rank", s.most_over_rank},
                         {"most_seconds", s.seconds}});
    };
    std::vector<std::string> groups{};
    std::set<int> pipeline{};
    for (const auto& r : rows) {
        if (std::find(groups.begin(), groups.end(), r.group) == groups.end()) { groups.push_back(r.group); }
        pipeline.insert(r.devices);
    }
    for (const auto& group : groups) {
        for (const int devices : pipeline) {
            add(group, std::to_string(devices),
                [&](const frozen_row& r) { return r.group == group && r.devices == devices; });
        }
    }
    for (const int devices : pipeline) {
        add("all", std::to_string(devices), [&](const frozen_row& r) { return r.devices == devices; });
    }
    add("all", "all", [](const frozen_row&) { return true; });
    table.print(markdown);
    print_worst(rows, markdown);
    const auto within =
        std::count_if(rows.begin(), rows.end(), [](const frozen_row& r) { return r.gap_percent() <= 1; });
    std::printf("\n%zu instances; %td of them within 1 %% of the bound\n", rows.size(), within);
    auto& list = all["instances"] = nlohmann::ordered_json::array();
    for (const auto& r : rows) {
        list.push_back({{"name", r.name},
                        {"group", r.group},
                        {"pipeline_degree", r.devices},
                        {"makespan_us", r.makespan_us},
                        {"lower_bound_us", r.bound_us},
                        {"passes_us", r.passes_us},
                        {"gap_percent", r.gap_percent()},
                        {"bubble_ratio", r.bubble},
                        {"bubble_ratio_without", r.bubble_without},
                        {"encode_first_us", r.first_us},
                        {"encode_first_rank_0_us", r.first_rank_us},
                        {"seconds", r.seconds}});
    }
    return all;
}

/// Rows of a grid with the settings that their runs share.
struct frozen_run {
    std::int64_t nodes{};
    std::string solver{};
    int sample{1};
    /// "i/n" of every run in it.
    std::vector<std::string> parts{};
    std::vector<frozen_row> rows{};
};

/// Reads the run in the file `path`. Throws input_error, naming file and field.
[[nodiscard]] inline frozen_run read_frozen(const std::string& path) {
    const auto value = pulse::io::parse_json(pulse::io::read_file(path), path);
    const pulse::io::json_field root{value, {path, "the file", frozen_format}};
    if (root["format"].text() != frozen_format) { root["format"].fail("must be '" + std::string{frozen_format} + "'"); }
    frozen_run run{root["nodes"].bytes(), root["solver"].text(), root["sample"].count(), {}, {}};
    for (const auto& part : root["parts"].list()) { run.parts.push_back(part.text()); }
    for (const auto& one : root["instances"].list()) {
        frozen_row row{one["group"].text(), one["name"].text(), one["pipeline_degree"].count()};
        row.makespan_us = one["makespan_us"].time();
        row.bound_us = one["lower_bound_us"].time();
        row.passes_us = one["passes_us"].time();
        row.bubble = one["bubble_ratio"].time();
        row.bubble_without = one["bubble_ratio_without"].time();
        row.first_us = one["encode_first_us"].time();
        row.first_rank_us = one["encode_first_rank_0_us"].time();
        row.seconds = one["seconds"].time();
        run.rows.push_back(std::move(row));
    }
    return run;
}

/// Merges the runs of several files. Throws input_error, naming the file, if it cannot be read, was run with other
/// settings than the first, or repeats a case of another.
[[nodiscard]] inline frozen_run merge_frozen(const std::vector<std::string>& paths) {
    frozen_run all{};
    std::set<std::string> names{};
    for (const auto& path : paths) {
        frozen_run one = read_frozen(path);
        const auto differs = [&](const char* field) {
            throw pulse::input_error(path + ": " + field + " must be that of " + paths.front());
        };
        if (&path == &paths.front()) { all = {one.nodes, one.solver, one.sample, {}, {}}; }
        if (one.nodes != all.nodes) { differs("nodes"); }
        if (one.solver != all.solver) { differs("solver"); }
        if (one.sample != all.sample) { differs("sample"); }
        all.parts.insert(all.parts.end(), one.parts.begin(), one.parts.end());
        for (auto& row : one.rows) {
            if (!names.insert(row.name).second) {
                throw pulse::input_error(path + ": " + row.name + " is in another file too");
            }
            all.rows.push_back(std::move(row));
        }
    }
    return all;
}

} // namespace pulse_bench
