#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pulse/io/atomic_file.hpp>
#include <pulse/schedule/bound.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/validate.hpp>
#if PULSE_BENCH_GLPK
#include <pulse/schedule/glpk.hpp>
#include <pulse/schedule/synthesize_with.hpp>
#endif

#include "plan_parts.hpp"
#include "schedule_grid.hpp"

namespace pulse_bench {

namespace {

using nlohmann::ordered_json;

struct gaps_options {
    double seconds{1};
    int sample{1};
    std::vector<int> pipeline{};
    std::vector<int> waves{};
    std::string split{"both"};
    std::string memory{"both"};
    std::string solver{"none"};
    bool each{};
    std::string json{};
};

/// One instance with what was reached on it.
struct gaps_row {
    grid_instance instance{};
    double makespan_us{};
    double bound_us{};
    /// What bound_schedule gave in the beginning.
    double first_bound_us{};
    double seconds{};

    [[nodiscard]] double gap_percent() const { return std::max(0.0, 100 * pulse::gap_of(makespan_us, bound_us)); }
    [[nodiscard]] double first_gap_percent() const {
        return std::max(0.0, 100 * pulse::gap_of(makespan_us, first_bound_us));
    }
    [[nodiscard]] bool proved() const { return makespan_us <= bound_us * (1 + 1e-9); }
};

/// Means over some rows.
struct gaps_summary {
    int count{};
    double mean{};
    double worst{};
    /// Mean gap to the bound of the beginning, with the same schedules.
    double first{};
    double proved{};
    double seconds{};
};

gaps_summary summarise(const std::vector<gaps_row>& rows, const std::function<bool(const grid_instance&)>& in) {
    gaps_summary s{};
    for (const auto& r : rows) {
        if (!in(r.instance)) { continue; }
        ++s.count;
        s.mean += r.gap_percent();
        s.worst = std::max(s.worst, r.gap_percent());
        s.first += r.first_gap_percent();
        s.proved += r.proved() ? 100.0 : 0.0;
        s.seconds += r.seconds;
    }
    const double n = std::max(s.count, 1);
    return {s.count, s.mean / n, s.worst, s.first / n, s.proved / n, s.seconds / n};
}

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

/// The synthesizer on one instance, and whether what it says is so.
gaps_row measure(const grid_instance& instance, const gaps_options& asked) {
    const auto& problem = instance.problem;
    pulse::synthesis_options options{};
    options.limit.seconds = asked.seconds;
    const double first = pulse::lower_bound_us(problem);
    const auto start = std::chrono::steady_clock::now();
    const auto found = synthesize(problem, options, asked.solver);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const auto violation = pulse::find_violation(problem, found.best);
    if (violation.broken()) { throw std::runtime_error(instance.name() + ": " + pulse::describe(violation)); }
    if (found.best.makespan_us() < found.lower_bound_us * (1 - 1e-9)) {
        throw std::runtime_error(instance.name() + ": the makespan is below the bound");
    }
    return {instance, found.best.makespan_us(), found.lower_bound_us, first, took.count()};
}

/// A figure against what is asked of it.
struct gaps_target {
    std::string text{};
    double found{};
    double wanted{};
    bool at_least{};

    [[nodiscard]] bool met() const { return at_least ? found >= wanted : found <= wanted; }
};

std::vector<gaps_target> targets(const std::vector<gaps_row>& rows) {
    std::vector<gaps_target> out{};
    const auto add = [&](const std::string& name, const std::function<bool(const grid_instance&)>& in, double mean,
                         double worst) {
        const auto s = summarise(rows, in);
        if (s.count == 0) { return; }
        out.push_back({name + ": mean gap, %", s.mean, mean, false});
        if (worst > 0) { out.push_back({name + ": worst gap, %", s.worst, worst, false}); }
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
    if (small.count != 0) { out.push_back({"P 2 4: proved optimal, %", small.proved, 90, true}); }
    add(
        "P 16, W 1, split", [](const grid_instance& i) { return i.devices == 16; }, 0.2, 1.7);
    return out;
}

void report(const std::vector<gaps_row>& rows, const gaps_options& options, ordered_json& all) {
    std::printf("%4s %3s %8s %7s %5s %9s %9s %10s %9s %9s\n", "P", "W", "backward", "memory", "n", "mean gap", "worst",
                "first mean", "proved", "seconds");
    auto& groups = all["groups"] = ordered_json::array();
    for (const int p : {2, 4, 8, 16, 32}) {
        for (const int w : {1, 2}) {
            for (const bool split : {true, false}) {
                for (const bool limited : {false, true}) {
                    const auto s = summarise(rows, [=](const grid_instance& i) {
                        return i.devices == p && i.waves == w && i.split == split && i.limited == limited;
                    });
                    if (s.count == 0) { continue; }
                    std::printf("%4d %3d %8s %7s %5d %8.3f%% %8.3f%% %9.3f%% %8.1f%% %9.3f\n", p, w,
                                split ? "split" : "unsplit", limited ? "1F1B's" : "free", s.count, s.mean, s.worst,
                                s.first, s.proved, s.seconds);
                    groups.push_back({{"pipeline_degree", p},
                                      {"waves", w},
                                      {"split_backward", split},
                                      {"memory", limited ? "1f1b" : "free"},
                                      {"instances", s.count},
                                      {"mean_gap_percent", s.mean},
                                      {"worst_gap_percent", s.worst},
                                      {"first_mean_gap_percent", s.first},
                                      {"proved_percent", s.proved},
                                      {"mean_seconds", s.seconds}});
                }
            }
        }
    }
    std::printf("\n%zu instances, at most %g s each%s\n", rows.size(), options.seconds,
                options.sample > 1 ? "; a sample, so the targets are only indicated" : "");
    auto& judged = all["targets"] = ordered_json::array();
    for (const auto& t : targets(rows)) {
        std::printf("    %-52s %8.3f, target %s %g: %s\n", t.text.c_str(), t.found, t.at_least ? ">=" : "<=", t.wanted,
                    t.met() ? "met" : "missed");
        judged.push_back({{"target", t.text}, {"found", t.found}, {"wanted", t.wanted}, {"met", t.met()}});
    }
    auto& list = all["instances"] = ordered_json::array();
    for (const auto& r : rows) {
        list.push_back({{"name", r.instance.name()},
                        {"makespan_us", r.makespan_us},
                        {"lower_bound_us", r.bound_us},
                        {"gap_percent", r.gap_percent()},
                        {"seconds", r.seconds}});
    }
}

void run(const gaps_options& options) {
    std::optional<pulse::io::atomic_file> json{}; // a file that cannot be written is found before the long run
    try {
        if (!options.json.empty()) { json.emplace(options.json); }
    } catch (const std::exception& e) { throw CLI::ValidationError("--json", e.what()); }
    grid_filter filter{options.pipeline, options.waves, {}, {}};
    if (options.split != "both") { filter.split = {options.split == "yes"}; }
    if (options.memory != "both") { filter.limited = {options.memory == "1f1b"}; }
    const auto grid = schedule_grid(filter);
    std::vector<gaps_row> rows{};
    for (std::size_t i = 0; i < grid.size(); i += static_cast<std::size_t>(options.sample)) {
        rows.push_back(measure(grid[i], options));
        const auto& r = rows.back();
        if (options.each) {
            std::printf("%-44s %10.0f %10.0f %8.3f%% %8.3f s\n", r.instance.name().c_str(), r.makespan_us, r.bound_us,
                        r.gap_percent(), r.seconds);
        }
    }
    ordered_json all{{"format", "pulse-bench-gaps/1"},
                     {"seconds", options.seconds},
                     {"sample", options.sample},
                     {"solver", options.solver}};
    report(rows, options, all);
    if (json) {
        json->write(all.dump(2) + "\n");
        json->commit();
    }
}

} // namespace

void add_gaps_part(CLI::App& app) {
    auto* part = app.add_subcommand("gaps", "makespan against the certified bound on a grid of instances");
    const auto options = std::make_shared<gaps_options>();
    part->add_option("--seconds", options->seconds, "per instance (1)")->check(CLI::PositiveNumber);
    part->add_option("--sample", options->sample, "every k-th instance (a k prime to 6 spreads best)")
        ->check(CLI::PositiveNumber);
    part->add_option("--pipeline", options->pipeline, "only these P; 16 and 32 must be asked for (2 4 8)")
        ->check(CLI::IsMember({2, 4, 8, 16, 32}));
    part->add_option("--waves", options->waves, "only these W")->check(CLI::IsMember({1, 2}));
    part->add_option("--split", options->split, "split backward")->check(CLI::IsMember({"yes", "no", "both"}));
    part->add_option("--memory", options->memory, "free or 1F1B's")->check(CLI::IsMember({"free", "1f1b", "both"}));
    part->add_option("--solver", options->solver, "who proves besides: none, or glpk where it was built in")
        ->check(CLI::IsMember(solvers));
    part->add_flag("--each", options->each, "print every instance");
    part->add_option("--json", options->json, "also write the figures to this file");
    part->callback([options] { run(*options); });
}

} // namespace pulse_bench
