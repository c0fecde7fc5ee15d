#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/validate.hpp>
#include <pulse/zoo/frozen_parts.hpp>
#if PULSE_BENCH_GLPK
#include <pulse/schedule/prove/glpk.hpp>
#include <pulse/schedule/synthesize_with.hpp>
#endif

#include "frozen_rows.hpp"
#include "json_output.hpp"
#include "plan_parts.hpp"
#include "schedule_baselines.hpp"
#include "schedule_gap_rows.hpp"
#include "schedule_gap_tables.hpp"
#include "schedule_grid.hpp"

namespace pulse_bench {

namespace {

using nlohmann::ordered_json;

struct gaps_options {
    double seconds{1};
    int sample{1};
    std::string part{"1/1"};
    std::vector<std::string> merged{};
    std::vector<int> pipeline{};
    std::vector<int> waves{};
    std::string split{"both"};
    std::string memory{"both"};
    std::string solver{"none"};
    std::set<std::string, std::less<>> without{};
    bool frozen{};
    std::int64_t nodes{400'000};
    int microbatch_size{4};
    bool each{};
    bool markdown{};
    std::string json{};
};

#if PULSE_BENCH_GLPK
const std::vector<std::string> solvers{"none", "glpk"};
#else
const std::vector<std::string> solvers{"none"};
#endif

pulse::synthesis synthesize(const pulse::schedule_problem& problem, const pulse::synthesis_options& options,
                            [[maybe_unused]] const std::string& solver) {
#if PULSE_BENCH_GLPK
    if (solver == "glpk") {
        pulse::glpk_solver glpk;
        return pulse::synthesize(problem, options, glpk);
    }
#endif
    return pulse::synthesize(problem, options);
}

/// Runs the synthesizer on one instance and validates its result; then runs the baselines.
gaps_row measure(const grid_instance& instance, const gaps_options& asked) {
    const auto& problem = instance.problem;
    pulse::synthesis_options options{};
    options.limit.seconds = asked.seconds;
    options.without = asked.without;
    gaps_row row{};
    row.instance = instance;
    row.first_bound_us = pulse::lower_bound_us(problem);
    const auto start = std::chrono::steady_clock::now();
    const auto found = synthesize(problem, options, asked.solver);
    row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    row.makespan_us = found.best.makespan_us();
    row.bound_us = found.lower_bound_us;
    const auto violation = pulse::find_violation(problem, found.best);
    if (violation.broken()) { throw std::runtime_error(instance.name() + ": " + pulse::describe(violation)); }
    const auto require_above_bound = [&](double makespan_us, const std::string& whose) {
        if (makespan_us < found.lower_bound_us * (1 - 1e-9)) {
            throw std::runtime_error(instance.name() + ": the makespan of " + whose + " is below the bound");
        }
    };
    require_above_bound(row.makespan_us, "the synthesizer");
    for (std::size_t b = 0; b != grid_baselines.size(); ++b) {
        const auto& baseline = grid_baselines[b];
        row.baselines[b] = run_baseline(instance, baseline);
        const bool same = baseline.kind == pulse::placement::folded && row.baselines[b];
        if (same && row.baselines[b]->over_limit <= 1) {
            require_above_bound(row.baselines[b]->makespan_us, std::string{baseline.name});
        }
    }
    return row;
}

/// A figure and its target.
struct gaps_target {
    std::string text{};
    double found{};
    double wanted{};
    bool at_least{};
    /// What may be spent on an instance.
    std::string effort{"1 s"};

    [[nodiscard]] bool met() const { return at_least ? found >= wanted : found <= wanted; }
};

std::vector<gaps_target> targets(const std::vector<gaps_row>& rows) {
    std::vector<gaps_target> out{};
    const auto add = [&](const std::string& name, const std::function<bool(const grid_instance&)>& in, double mean,
                         double worst, const char* effort = "1 s") {
        const auto s = summarise(rows, in);
        if (s.count == 0) { return; }
        out.push_back({name + ": mean gap, %", s.mean, mean, false, effort});
        if (worst > 0) { out.push_back({name + ": worst gap, %", s.worst, worst, false, effort}); }
    };
    for (const int w : {1, 2}) {
        for (const bool split : {true, false}) {
            add(
                "P 2 4 8, W " + std::to_string(w) + (split ? ", split" : ", unsplit") + ", memory free",
                [=](const grid_instance& i) {
                    return i.devices <= 8 && i.waves == w && i.split == split && !i.limited;
                },
                0.1, 1.3);
        }
        add(
            "P 2 4 8, W " + std::to_string(w) + ", split, 1F1B's memory",
            [=](const grid_instance& i) { return i.devices <= 8 && i.waves == w && i.split && i.limited; },
            w == 1 ? 0.15 : 0.6, 0);
    }
    // Half of what a prototype reached where its bound was weak.
    struct weak {
        int devices{};
        int waves{};
        bool split{};
        double mean{};
    };
    for (const auto& t :
         {weak{2, 1, false, 0.39}, weak{4, 1, false, 0.07}, weak{8, 1, false, 0.09}, weak{4, 2, true, 0.27},
          weak{8, 2, true, 0.48}, weak{4, 2, false, 1.06}, weak{8, 2, false, 1.98}}) {
        add(
            "P " + std::to_string(t.devices) + ", W " + std::to_string(t.waves) + (t.split ? ", split" : ", unsplit") +
                ", 1F1B's memory, halved",
            [=](const grid_instance& i) {
                return i.devices == t.devices && i.waves == t.waves && i.split == t.split && i.limited;
            },
            t.mean, 0);
    }
    const auto small = summarise(rows, [](const grid_instance& i) { return i.devices <= 4; });
    if (small.count != 0) { out.push_back({"P 2 4: proved optimal, %", small.proved, 90, true, "10 s with glpk"}); }
    add(
        "P 16, W 1, split", [](const grid_instance& i) { return i.devices == 16; }, 0.2, 1.7, "5 s");
    double beaten = 0;
    for (const auto& s : summarise(rows, [](const grid_instance&) { return true; }).baselines) {
        beaten += s.beats_best;
    }
    out.push_back({"lost to ZB-V or a greedy wave in the same memory", beaten, 0, false});
    return out;
}

/// Prints whether each figure meets its target.
ordered_json judge(const std::vector<gaps_target>& targets) {
    ordered_json judged = ordered_json::array();
    for (const auto& t : targets) {
        std::printf("    %-54s %8.3f, target %s %g in %s: %s\n", t.text.c_str(), t.found,
                    t.at_least ? ">=" : "<=", t.wanted, t.effort.c_str(), t.met() ? "met" : "missed");
        judged.push_back(
            {{"target", t.text}, {"found", t.found}, {"wanted", t.wanted}, {"in", t.effort}, {"met", t.met()}});
    }
    return judged;
}

void report(const gaps_run& run, const gaps_options& options, json_output& json) {
    const auto groups = gaps_groups(run.rows);
    const auto every = summarise(run.rows, [](const grid_instance&) { return true; });
    if (options.markdown) {
        print_gaps_markdown(groups);
    } else {
        print_gaps(groups, every);
    }
    std::puts("");
    print_baselines(groups, every, options.markdown);

    ordered_json all{{"format", gaps_format}, {"seconds", run.seconds}, {"solver", run.solver},
                     {"sample", run.sample},  {"parts", run.parts},     {"without", run.without}};
    const auto missing = missing_parts(run.parts);
    std::printf("\n%zu instances, at most %g s each, solver %s%s", run.rows.size(), run.seconds, run.solver.c_str(),
                run.sample > 1 || !missing.empty() ? "; a sample, so the targets are only indicated" : "");
    for (const auto& part : missing) { std::printf("; without part %s", part.c_str()); }
    for (const auto& phase : run.without) { std::printf("; without the phase %s", phase.c_str()); }
    std::puts("");
    all["targets"] = judge(targets(run.rows));
    auto& lines = all["groups"] = ordered_json::array();
    for (const auto& g : groups) { lines.push_back(to_json(g)); }
    auto& list = all["instances"] = ordered_json::array();
    for (const auto& r : run.rows) { list.push_back(to_json(r)); }
    json.write(all);
}

/// The same passes beside 10, 25, 40 and 100 % of their load as frozen work: the layers of the autoencoder at 512
/// pixels, with their times scaled.
std::vector<frozen_case> frozen_cases(const grid_instance& instance, int microbatch_size) {
    const auto shape = pulse::frozen_costs("sd15", pulse::a100_80gb, 2).front();
    double busy = 0;
    for (const double b : pulse::busy_us(instance.problem)) { busy += b; }
    std::vector<frozen_case> out{};
    for (const int percent : {10, 25, 40, 100}) {
        const std::string share = std::to_string(percent) + " %";
        frozen_case one{
            share + " of the load", instance.name() + " + " + share, instance.problem, {}, instance.devices};
        one.work = {{shape}, instance.microbatches * microbatch_size, {}, {}};
        const double factor = busy * percent / 100 / pulse::least_work_us(shape, one.work.samples);
        for (auto& l : one.work.components.front().layers) {
            l.call_us *= factor;
            l.sample_us *= factor;
            l.live_bytes = l.output_bytes = 0; // bytes of this grid are made up
        }
        out.push_back(std::move(one));
    }
    return out;
}

std::vector<gaps_target> frozen_targets(const std::vector<frozen_row>& rows) {
    std::vector<gaps_target> out{};
    const auto add = [&](const char* name, const std::function<bool(const frozen_row&)>& in, double mean,
                         double worst) {
        const auto s = summarise(rows, in);
        if (s.count == 0) { return; }
        out.push_back({name + std::string{": mean gap, %"}, s.mean, mean, false, "these nodes"});
        out.push_back({name + std::string{": worst gap, %"}, s.worst, worst, false, "these nodes"});
    };
    add(
        "P 2 4", [](const frozen_row& r) { return r.devices <= 4; }, 0.2, 1);
    add(
        "P 8", [](const frozen_row& r) { return r.devices == 8; }, 0.5, 1.5);
    const auto all = summarise(rows, [](const frozen_row&) { return true; });
    out.push_back({"planning more, s of one core at most", all.seconds, 0.1, false, "400,000 placements"});
    return out;
}

void report_frozen_grid(const frozen_run& run, bool markdown, json_output& json) {
    auto all = report_frozen(run.rows, markdown);
    all["nodes"] = run.nodes;
    all["solver"] = run.solver;
    all["sample"] = run.sample;
    all["parts"] = run.parts;
    const auto missing = missing_parts(run.parts);
    std::printf("passes of at most %lld nodes each, solver %s%s", static_cast<long long>(run.nodes), run.solver.c_str(),
                run.sample > 1 || !missing.empty() ? "; a sample, so the targets are only indicated" : "");
    for (const auto& part : missing) { std::printf("; without part %s", part.c_str()); }
    std::puts("");
    all["targets"] = judge(frozen_targets(run.rows));
    json.write(all);
}

void run(const gaps_options& options) {
    json_output json{options.json};
    if (!options.merged.empty()) {
        gaps_run merged{};
        frozen_run beside{};
        try {
            if (options.frozen) {
                beside = merge_frozen(options.merged);
            } else {
                merged = merge_gaps(options.merged);
            }
        } catch (const pulse::input_error& e) { throw CLI::ValidationError("--merge", e.what()); }
        return options.frozen ? report_frozen_grid(beside, options.markdown, json) : report(merged, options, json);
    }
    grid_filter filter{options.pipeline, options.waves, {}, {}};
    if (options.split != "both") { filter.split = {options.split == "yes"}; }
    if (options.memory != "both") { filter.limited = {options.memory == "1f1b"}; }
    const auto [part, parts] = *part_of(options.part);
    const auto step = static_cast<std::size_t>(options.sample);
    const auto grid = schedule_grid(filter);
    gaps_run measured{options.seconds, options.solver, options.sample, {options.part}, {}, options.without};
    frozen_run beside{options.nodes, options.solver, options.sample, {options.part}, {}};
    for (std::size_t i = static_cast<std::size_t>(part - 1) * step; i < grid.size();
         i += step * static_cast<std::size_t>(parts)) {
        if (options.frozen) {
            pulse::synthesis_options counted{};
            counted.limit = {.nodes = options.nodes};
            const auto alone = synthesize(grid[i].problem, counted, options.solver);
            for (const auto& one : frozen_cases(grid[i], options.microbatch_size)) {
                beside.rows.push_back(measure_frozen(one, alone));
                if (options.each) { print_row(beside.rows.back()); }
            }
            continue;
        }
        measured.rows.push_back(measure(grid[i], options));
        const auto& r = measured.rows.back();
        if (options.each) {
            std::printf("%-44s %10.0f %10.0f %8.3f%% %8.3f s\n", r.instance.name().c_str(), r.makespan_us, r.bound_us,
                        r.gap_percent(), r.seconds);
        }
    }
    if (options.frozen) { return report_frozen_grid(beside, options.markdown, json); }
    report(measured, options, json);
}

} // namespace

void add_gaps_part(CLI::App& app) {
    auto* part = app.add_subcommand("gaps", "makespan against the certified bound, and against what others take, on a "
                                            "grid of instances");
    const auto options = std::make_shared<gaps_options>();
    auto* without = part->add_option("--without", options->without, "phases of the synthesizer to leave out")
                        ->check(CLI::IsMember(
                            std::vector<std::string>(pulse::synthesis_phases.begin(), pulse::synthesis_phases.end())));
    auto* seconds = part->add_option("--seconds", options->seconds, "per instance (1)")->check(CLI::PositiveNumber);
    const std::vector measuring{
        without,
        seconds,
        part->add_option("--sample", options->sample, "every k-th instance (a k prime to 6 spreads best)")
            ->check(CLI::PositiveNumber),
        part->add_option("--part", options->part,
                         "i/n: every n-th of these from the i-th on, to be merged with the rest")
            ->check([](const std::string& text) {
                return part_of(text) ? "" : "'" + text + "' is not i/n with 1 <= i <= n";
            }),
        part->add_option("--pipeline", options->pipeline, "only these P; 16 and 32 must be named (2 4 8)")
            ->check(CLI::IsMember({2, 4, 8, 16, 32})),
        part->add_option("--waves", options->waves, "only these W")->check(CLI::IsMember({1, 2})),
        part->add_option("--split", options->split, "split backward")->check(CLI::IsMember({"yes", "no", "both"})),
        part->add_option("--memory", options->memory, "free or 1F1B's")->check(CLI::IsMember({"free", "1f1b", "both"})),
        part->add_option("--solver", options->solver, "which solver proves bounds too: none, or glpk if built in")
            ->check(CLI::IsMember(solvers)),
        part->add_flag("--each", options->each, "print every instance")};
    auto* frozen =
        part->add_flag("--frozen", options->frozen, "with 10, 25, 40 and 100 % of each instance's load as frozen work");
    for (auto* option : {seconds, without}) { frozen->excludes(option); }
    auto* nodes = part->add_option(
        "--nodes", options->nodes,
        "with --frozen, instead of seconds: search nodes of the synthesizer per instance (400000, about a second)");
    auto* size =
        part->add_option("--microbatch-size", options->microbatch_size, "samples to encode for each microbatch (4)");
    for (auto* option : {nodes, size}) { option->check(CLI::PositiveNumber)->needs(frozen); }
    auto* merge =
        part->add_option("--merge", options->merged,
                         "measure nothing: print one table of these --json files (with --frozen, of its files)");
    for (auto* option : measuring) { merge->excludes(option); }
    for (auto* option : {nodes, size}) { merge->excludes(option); }
    part->add_flag("--markdown", options->markdown, "print the tables as Markdown");
    part->add_option("--json", options->json, "also write the figures to this file");
    part->callback([options] { run(*options); });
}

} // namespace pulse_bench
