#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/schedule/fill/fill_schedule.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/validate_fill.hpp>
#include <pulse/zoo/frozen_parts.hpp>
#include <pulse/zoo/known_models.hpp>

#include "json_output.hpp"
#include "plan_parts.hpp"
#include "schedule_grid.hpp"
#include "text_table.hpp"

namespace pulse_bench {

namespace {

using nlohmann::ordered_json;

struct frozen_options {
    std::int64_t nodes{20'000};
    std::string parts{"vae"};
    int microbatch_size{4};
    std::vector<int> pipeline{2, 4, 8};
    int sample{1};
    bool grid{};
    bool each{};
    bool markdown{};
    std::string json{};
};

/// Passes, and what is to be done beside them.
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
    double bubble_without{};
    double bubble{};
    /// All ranks encode alike, none of them idle, and then the pipeline starts.
    double first_us{};
    /// The first rank encodes all.
    double first_rank_us{};
    double seconds{};

    [[nodiscard]] double gap_percent() const { return 100 * pulse::gap_of(makespan_us, bound_us); }
    [[nodiscard]] double gain() const { return first_us / makespan_us; }
};

/// What the tasks may use besides what the passes hold: as much as three of the greatest at a time.
void give_room(pulse::schedule_problem& problem, const pulse::frozen_work& work) {
    std::int64_t most = 0;
    for (const auto& c : work.components) {
        for (const auto& l : c.layers) { most = std::max(most, l.live_bytes * c.max_chunk); }
    }
    for (auto& limit : problem.memory_limit_bytes) { limit += 3 * most; }
}

frozen_row measure(const frozen_case& of, std::int64_t nodes) {
    pulse::synthesis_options options{};
    options.limit = {.nodes = nodes};
    const auto alone = pulse::synthesize(of.problem, options);
    auto problem = of.problem;
    give_room(problem, of.work);
    const auto start = std::chrono::steady_clock::now();
    const auto filled = pulse::fill_schedule(problem, alone.best, of.work, alone.lower_bound_us);
    frozen_row row{of.group, of.name, of.devices};
    row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    pulse::validate_fill(problem, of.work, filled.passes, filled.tasks);
    row.makespan_us = filled.makespan_us();
    row.bound_us = filled.lower_bound_us;
    if (row.makespan_us < row.bound_us * (1 - 1e-9)) { throw std::runtime_error(of.name + ": below the bound"); }
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
    row.bubble = 1 - (busy + encoding) / (of.devices * row.makespan_us);
    return row;
}

/// The backbones with their frozen parts: every one split and not, with free memory and that of 1F1B.
std::vector<frozen_case> zoo_cases(const frozen_options& asked) {
    std::vector<frozen_case> out{};
    for (const std::string model : {"sd21", "hunyuan_dit_v12"}) {
        const auto costs =
            pulse::analytic_costs(pulse::find_model(model)->graph, pulse::a100_80gb, asked.microbatch_size, 2);
        auto frozen = pulse::frozen_costs(model, pulse::a100_80gb, 2);
        if (asked.parts == "vae") { frozen.resize(1); }
        for (const int devices : asked.pipeline) {
            const auto cut = pulse::skip_aware_partition(costs, devices, 1);
            for (const bool split : {true, false}) {
                for (const int times : {1, 2}) {
                    for (const bool limited : {false, true}) {
                        pulse::problem_options ask{};
                        ask.microbatches = times * devices;
                        ask.split_backward = split;
                        ask.link = pulse::nvlink3;
                        frozen_case one{model + (split ? " split" : " unsplit"), {}, {}, {}, devices};
                        one.name = model + " P" + std::to_string(devices) + " M" + std::to_string(ask.microbatches) +
                                   (split ? " split" : " unsplit") + (limited ? " 1F1B's memory" : " free");
                        one.problem = pulse::make_problem(costs, cut, ask);
                        if (limited) {
                            one.problem.memory_limit_bytes.resize(static_cast<std::size_t>(devices), 0);
                            for (const auto& h : one.problem.holds) {
                                one.problem.memory_limit_bytes[static_cast<std::size_t>(h.device)] += devices * h.bytes;
                            }
                        }
                        one.work = {frozen, ask.microbatches * asked.microbatch_size, {}, ask.link};
                        out.push_back(std::move(one));
                    }
                }
            }
        }
    }
    return out;
}

/// The grid of schedules, with as much frozen work as 10, 25, 40 and 100 % of the load: the layers of the autoencoder
/// at 512 pixels, so much faster or slower, on microbatches of the size asked for.
std::vector<frozen_case> grid_cases(const frozen_options& asked) {
    std::vector<frozen_case> out{};
    const auto shape = pulse::frozen_costs("sd15", pulse::a100_80gb, 2).front();
    const auto grid = schedule_grid({asked.pipeline, {}, {}, {}});
    for (std::size_t i = 0; i < grid.size(); i += static_cast<std::size_t>(asked.sample)) {
        for (const int percent : {10, 25, 40, 100}) {
            frozen_case one{std::to_string(percent) + " % of the load",
                            grid[i].name() + " + " + std::to_string(percent),
                            grid[i].problem,
                            {},
                            grid[i].devices};
            one.work = {{shape}, grid[i].microbatches * asked.microbatch_size, {}, {}};
            double busy = 0;
            for (const double b : pulse::busy_us(one.problem)) { busy += b; }
            const double factor = busy * percent / 100 / pulse::least_work_us(shape, one.work.samples);
            for (auto& l : one.work.components.front().layers) {
                l.call_us *= factor;
                l.sample_us *= factor;
                l.live_bytes = l.output_bytes = 0; // bytes of this grid are no one's
            }
            out.push_back(std::move(one));
        }
    }
    return out;
}

struct frozen_summary {
    int count{};
    double mean{};
    double worst{};
    double bubble{};
    double least_gain{1e300};
    double gain{};
    double most_gain{};
    double most_over_rank{};
    double seconds{};
};

frozen_summary summarise(const std::vector<frozen_row>& rows, const std::function<bool(const frozen_row&)>& in) {
    frozen_summary s{};
    for (const auto& r : rows) {
        if (!in(r)) { continue; }
        ++s.count;
        s.mean += r.gap_percent();
        s.worst = std::max(s.worst, r.gap_percent());
        s.bubble += 100 * r.bubble;
        s.gain += r.gain();
        s.least_gain = std::min(s.least_gain, r.gain());
        s.most_gain = std::max(s.most_gain, r.gain());
        s.most_over_rank = std::max(s.most_over_rank, r.first_rank_us / r.makespan_us);
        s.seconds = std::max(s.seconds, r.seconds);
    }
    if (s.count != 0) { s.mean /= s.count, s.bubble /= s.count, s.gain /= s.count; }
    return s;
}

void report(const std::vector<frozen_row>& rows, const frozen_options& options, json_output& json) {
    text_table table{{"frozen", "P", "instances", "gap to the bound, mean", "worst", "bubble",
                      "over encoding first on all", "worst", "best", "over rank 0, best", "s, most"},
                     {}};
    ordered_json all{{"format", "pulse-bench-frozen/1"}, {"nodes", options.nodes}};
    auto& lines = all["groups"] = ordered_json::array();
    const auto add = [&](const std::string& group, const std::string& devices,
                         const std::function<bool(const frozen_row&)>& in) {
        const auto s = summarise(rows, in);
        if (s.count == 0) { return; }
        table.rows.push_back({group, devices, std::to_string(s.count), text_of("%.2f %%", s.mean),
                              text_of("%.2f %%", s.worst), text_of("%.2f %%", s.bubble), text_of("%.3fx", s.gain),
                              text_of("%.3fx", s.least_gain), text_of("%.3fx", s.most_gain),
                              text_of("%.2fx", s.most_over_rank), text_of("%.3f", s.seconds)});
        lines.push_back({{"group", group},
                         {"pipeline_degree", devices},
                         {"instances", s.count},
                         {"mean_gap_percent", s.mean},
                         {"worst_gap_percent", s.worst},
                         {"mean_bubble_percent", s.bubble},
                         {"mean_over_first", s.gain},
                         {"least_over_first", s.least_gain},
                         {"most_over_first", s.most_gain},
                         {"most_over_first_rank", s.most_over_rank},
                         {"most_seconds", s.seconds}});
    };
    std::vector<std::string> groups{};
    for (const auto& r : rows) {
        if (std::find(groups.begin(), groups.end(), r.group) == groups.end()) { groups.push_back(r.group); }
    }
    for (const auto& group : groups) {
        for (const int devices : options.pipeline) {
            add(group, std::to_string(devices),
                [&](const frozen_row& r) { return r.group == group && r.devices == devices; });
        }
    }
    for (const int devices : options.pipeline) {
        add("all", std::to_string(devices), [&](const frozen_row& r) { return r.devices == devices; });
    }
    add("all", "all", [](const frozen_row&) { return true; });
    table.print(options.markdown);
    const auto within =
        std::count_if(rows.begin(), rows.end(), [](const frozen_row& r) { return r.gap_percent() <= 1; });
    std::printf("\n%zu instances, schedules of %lld nodes each; %td of them within 1 %% of the bound\n", rows.size(),
                static_cast<long long>(options.nodes), within);
    auto& list = all["instances"] = ordered_json::array();
    for (const auto& r : rows) {
        list.push_back({{"name", r.name},
                        {"makespan_us", r.makespan_us},
                        {"lower_bound_us", r.bound_us},
                        {"gap_percent", r.gap_percent()},
                        {"bubble_ratio", r.bubble},
                        {"bubble_ratio_without", r.bubble_without},
                        {"encode_first_us", r.first_us},
                        {"encode_first_rank_0_us", r.first_rank_us},
                        {"seconds", r.seconds}});
    }
    json.write(all);
}

void run(const frozen_options& options) {
    json_output json{options.json};
    std::vector<frozen_row> rows{};
    for (const auto& one : options.grid ? grid_cases(options) : zoo_cases(options)) {
        rows.push_back(measure(one, options.nodes));
        const auto& r = rows.back();
        if (options.each) {
            std::printf("%-46s %10.0f %10.0f %7.3f%% bubble %6.2f%% -> %6.2f%% %6.3fx %8.3f s\n", r.name.c_str(),
                        r.makespan_us, r.bound_us, r.gap_percent(), 100 * r.bubble_without, 100 * r.bubble, r.gain(),
                        r.seconds);
        }
    }
    report(rows, options, json);
}

} // namespace

void add_frozen_part(CLI::App& app) {
    auto* part = app.add_subcommand("frozen", "frozen work in the bubbles: makespan against the certified bound, and "
                                              "against encoding first");
    const auto options = std::make_shared<frozen_options>();
    part->add_option("--nodes", options->nodes, "of the synthesizer, per instance (20000); figures depend on no clock")
        ->check(CLI::PositiveNumber);
    part->add_option("--parts", options->parts, "vae, or all frozen parts, text encoders too")
        ->check(CLI::IsMember({"vae", "all"}));
    part->add_option("--microbatch-size", options->microbatch_size, "samples (4)")->check(CLI::PositiveNumber);
    part->add_option("--pipeline", options->pipeline, "only these P (2 4 8)")->check(CLI::IsMember({2, 4, 8, 16}));
    auto* grid = part->add_flag("--grid", options->grid,
                                "the grid of bench_plan gaps, with 10, 25, 40 and 100 % of its load as frozen work");
    part->add_option("--sample", options->sample, "every k-th instance of the grid")
        ->check(CLI::PositiveNumber)
        ->needs(grid);
    part->add_flag("--each", options->each, "print every instance");
    part->add_flag("--markdown", options->markdown, "print the table as Markdown");
    part->add_option("--json", options->json, "also write the figures to this file");
    part->callback([options] { run(*options); });
}

} // namespace pulse_bench
