#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "schedule_baselines.hpp"
#include "schedule_gap_rows.hpp"
#include "schedule_grid.hpp"
#include "schedule_ratio.hpp"
#include "text_table.hpp"

namespace pulse_bench {

/// Results of a baseline over some rows.
struct baseline_summary {
    /// Its makespan over the best found.
    ratio_summary over_best{};
    /// Rows with limited memory, those in which it needs more, and the largest ratio of needed to allowed memory.
    int limited{};
    int over_limit{};
    double most_over_limit{1};
    /// Rows in which it beats the synthesizer on the same placement and in the same memory.
    int beats_best{};
};

/// Means over some rows.
struct gaps_summary {
    int count{};
    double mean{};
    double worst{};
    /// Mean gap of the same schedules to the first bound.
    double first{};
    /// Per cent of the rows.
    double proved{};
    double seconds{};
    std::array<baseline_summary, grid_baselines.size()> baselines{};
};

[[nodiscard]] inline gaps_summary summarise(const std::vector<gaps_row>& rows,
                                            const std::function<bool(const grid_instance&)>& in) {
    gaps_summary s{};
    for (const auto& r : rows) {
        if (!in(r.instance)) { continue; }
        ++s.count;
        s.mean += r.gap_percent();
        s.worst = std::max(s.worst, r.gap_percent());
        s.first += r.first_gap_percent();
        s.proved += r.proved() ? 100.0 : 0.0;
        s.seconds += r.seconds;
        for (std::size_t b = 0; b != grid_baselines.size(); ++b) {
            if (!r.baselines[b]) { continue; }
            auto& of = s.baselines[b];
            const auto& run = *r.baselines[b];
            of.over_best.add(run.makespan_us / r.makespan_us);
            of.limited += r.instance.limited ? 1 : 0;
            of.over_limit += run.over_limit > 1 ? 1 : 0;
            of.most_over_limit = std::max(of.most_over_limit, run.over_limit);
            const bool same = grid_baselines[b].kind == pulse::placement::folded && run.over_limit <= 1;
            of.beats_best += same && run.makespan_us < r.makespan_us * (1 - 1e-9) ? 1 : 0;
        }
    }
    const double n = std::max(s.count, 1);
    s.mean /= n;
    s.first /= n;
    s.proved /= n;
    s.seconds /= n;
    return s;
}

/// The instances of one line of the tables.
struct gaps_group {
    int devices{};
    int waves{};
    bool split{};
    bool limited{};
    gaps_summary summary{};
};

/// One per pipeline degree, waves, split and memory, in the order of the grid.
[[nodiscard]] inline std::vector<gaps_group> gaps_groups(const std::vector<gaps_row>& rows) {
    std::map<std::tuple<int, int, bool, bool>, gaps_group> found{};
    for (const auto& r : rows) {
        const auto& i = r.instance;
        found[{i.devices, i.waves, !i.split, i.limited}] = {i.devices, i.waves, i.split, i.limited, {}};
    }
    std::vector<gaps_group> out{};
    for (auto& [key, g] : found) {
        g.summary = summarise(rows, [&of = g](const grid_instance& i) {
            return i.devices == of.devices && i.waves == of.waves && i.split == of.split && i.limited == of.limited;
        });
        out.push_back(g);
    }
    return out;
}

/// Gaps on a terminal: one line per group, and one of all instances.
inline void print_gaps(const std::vector<gaps_group>& groups, const gaps_summary& all) {
    text_table table{{"P", "W", "backward", "memory", "n", "mean gap", "worst", "first mean", "proved", "seconds"}, {}};
    const auto add = [&](std::vector<std::string> row, const gaps_summary& s) {
        row.insert(row.end(), {std::to_string(s.count), text_of("%.3f%%", s.mean), text_of("%.3f%%", s.worst),
                               text_of("%.3f%%", s.first), text_of("%.1f%%", s.proved), text_of("%.3f", s.seconds)});
        table.rows.push_back(std::move(row));
    };
    for (const auto& g : groups) {
        add({std::to_string(g.devices), std::to_string(g.waves), g.split ? "split" : "unsplit",
             g.limited ? "1F1B's" : "free"},
            g.summary);
    }
    add({"all", "", "", ""}, all);
    table.print(false);
}

/// Gaps in Markdown: free and limited memory side by side, "-" where there are no instances.
inline void print_gaps_markdown(const std::vector<gaps_group>& groups) {
    text_table table{
        {"P", "W", "backward", "memory free: mean / worst", "proved", "memory limited: mean / worst", "proved"}, {}};
    std::map<std::tuple<int, int, bool>, std::array<const gaps_summary*, 2>> lines{};
    for (const auto& g : groups) { lines[{g.devices, g.waves, !g.split}][g.limited ? 1 : 0] = &g.summary; }
    for (const auto& [key, sides] : lines) {
        const auto& [devices, waves, unsplit] = key;
        table.rows.push_back({std::to_string(devices), std::to_string(waves), unsplit ? "unsplit" : "split"});
        for (const auto* s : sides) {
            table.rows.back().push_back(s == nullptr ? "-"
                                                     : text_of("%.2f", s->mean) + " / " + text_of("%.2f %%", s->worst));
            table.rows.back().push_back(s == nullptr ? "-" : text_of("%.0f %%", s->proved));
        }
    }
    table.print(true);
}

/// Prints how much longer the baselines take than the best found. A baseline that exceeds the memory limit in a row is
/// marked in its heading, and its need is printed below.
inline void print_baselines(const std::vector<gaps_group>& groups, const gaps_summary& all, bool markdown) {
    std::puts("Makespan over the best found, geometric mean, with the same load on every device. Sequential and "
              "interleaved\nplacements relay their skips, one latency for each tensor at each boundary; 'no skips': as "
              "if that were free.\n");
    text_table table{{"P", "W", "backward", "memory"}, {}};
    std::string needs{};
    for (std::size_t b = 0; b != grid_baselines.size(); ++b) {
        const auto& s = all.baselines[b];
        const std::string name{grid_baselines[b].name};
        table.heads.push_back(name + (s.over_limit > 0 ? (markdown ? " \\*" : "*") : ""));
        if (s.over_limit == 0) { continue; }
        needs += (needs.empty() ? "" : "; ") + name + " in " + std::to_string(s.over_limit) + " of " +
                 std::to_string(s.limited) + " instances, up to " + text_of("%.2fx", s.most_over_limit);
    }
    for (const auto& g : groups) {
        table.rows.push_back({std::to_string(g.devices), std::to_string(g.waves), g.split ? "split" : "unsplit",
                              g.limited ? "1F1B's" : "free"});
        for (const auto& s : g.summary.baselines) {
            table.rows.back().push_back(s.over_best.count == 0 ? (markdown ? "" : "-")
                                                               : text_of("%.2f", s.over_best.mean()));
        }
    }
    table.print(markdown);
    if (!needs.empty()) {
        std::printf("\n%s needs more memory than is allowed where it is limited: %s.\n", markdown ? "\\*" : "*",
                    needs.c_str());
    }
}

[[nodiscard]] inline nlohmann::ordered_json to_json(const gaps_group& g) {
    const auto& s = g.summary;
    nlohmann::ordered_json out{{"pipeline_degree", g.devices}, {"waves", g.waves},
                               {"split_backward", g.split},    {"memory", g.limited ? "1f1b" : "free"},
                               {"instances", s.count},         {"mean_gap_percent", s.mean},
                               {"worst_gap_percent", s.worst}, {"first_mean_gap_percent", s.first},
                               {"proved_percent", s.proved},   {"mean_seconds", s.seconds}};
    auto& others = out["baselines"] = nlohmann::ordered_json::object();
    for (std::size_t b = 0; b != grid_baselines.size(); ++b) {
        const auto& of = s.baselines[b];
        if (of.over_best.count == 0) { continue; }
        others[std::string{grid_baselines[b].key}] = {{"over_best_mean", of.over_best.mean()},
                                                      {"over_best_worst", of.over_best.worst},
                                                      {"instances_over_limit", of.over_limit},
                                                      {"most_over_limit", of.most_over_limit}};
    }
    return out;
}

} // namespace pulse_bench
