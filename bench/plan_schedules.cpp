#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/baselines/within_limit.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/validate.hpp>
#include <pulse/zoo/known_models.hpp>

#include "chimera.hpp"
#include "json_output.hpp"
#include "plan_parts.hpp"
#include "schedule_rows.hpp"

namespace pulse_bench {

namespace {

using nlohmann::ordered_json;
using pulse::schedule_method;

/// Weights, gradients and AdamW's two moments, all of 16 bits.
constexpr pulse::parameter_memory kept{.scalar_bytes = 2, .gradient_bytes = 2, .state_bytes = 4};
constexpr int parameter_copies = kept.total_bytes() / kept.scalar_bytes;

struct named_link {
    const char* name{};
    pulse::link link{};
};
constexpr std::array both_links{named_link{"nvlink3", pulse::nvlink3}, named_link{"pcie4", pulse::pcie4_x16}};

struct schedules_options {
    std::vector<std::string> models{};
    std::vector<int> pipeline{2, 4, 8};
    std::vector<int> waves{1, 2};
    std::vector<int> times{1, 2, 4, 8};
    std::string routing{"direct"};
    int microbatch_size{4};
    double seconds{0.05};
    bool quick{};
    std::string json{};
};

struct counts {
    int valid{};
    int checked{};
    int no_cut{};
    int undefined{};
};

/// A cut of the model with its scheduling problem and its bound.
struct cut_problem {
    pulse::partition cut{};
    pulse::schedule_problem problem{};
    double bound_us{};
};

/// Runs everything of one case and adds its rows.
class case_run {
public:
    case_run(const pulse::cost_table& costs, const schedule_case& at, const pulse::link& link,
             const schedules_options& options, counts& found, std::vector<schedule_row>& rows) :
        costs_(costs),
        at_(at), options_(options), found_(found), rows_(rows) {
        ask_.microbatches = at.microbatches;
        ask_.split_backward = at.split;
        ask_.routing = options.routing == "direct" ? pulse::skip_routing::direct : pulse::skip_routing::relayed;
        ask_.link = link;
    }

    void run() {
        folded_ = cut(pulse::placement::folded, at_.waves);
        if (folded_) { synthesize(); }
        for (const auto kind :
             {pulse::placement::folded, pulse::placement::interleaved, pulse::placement::sequential}) {
            // as many stages as the folded placement has
            const int chunks = kind == pulse::placement::folded        ? at_.waves
                               : kind == pulse::placement::interleaved ? 2 * at_.waves
                                                                       : 1;
            if (kind == pulse::placement::sequential && at_.waves != 1) { continue; }
            const auto of = kind == pulse::placement::folded ? folded_ : cut(kind, chunks);
            if (!of) { continue; }
            for (const auto method : pulse::baseline_methods) {
                if (!pulse::unmet_need(method, kind, chunks, at_.split).empty()) { continue; }
                // GPipe: only its own placement, and the folded one for comparison
                if (method == schedule_method::gpipe && kind == pulse::placement::interleaved) { continue; }
                baseline(*of, method);
            }
            if (kind == pulse::placement::sequential) { bidirectional(of->cut); }
        }
    }

private:
    const pulse::cost_table& costs_;
    const schedule_case& at_;
    const schedules_options& options_;
    counts& found_;
    std::vector<schedule_row>& rows_;
    pulse::problem_options ask_{};
    std::optional<cut_problem> folded_{};
    pulse::schedule synthesized_{};
    std::vector<std::int64_t> synthesized_peaks_{};

    std::optional<cut_problem> cut(pulse::placement kind, int chunks) {
        cut_problem out{};
        try {
            out.cut = kind == pulse::placement::folded ? pulse::skip_aware_partition(costs_, at_.devices, chunks)
                      : kind == pulse::placement::interleaved
                          ? pulse::interleaved_partition(costs_, at_.devices, chunks)
                          : pulse::sequential_partition(costs_, at_.devices, {.slack = 0.0, .routing = ask_.routing});
        } catch (const pulse::infeasible_error&) {
            ++found_.no_cut;
            return std::nullopt;
        }
        out.problem = pulse::make_problem(costs_, out.cut, ask_);
        out.bound_us = pulse::lower_bound_us(out.problem);
        return out;
    }

    [[noreturn]] void fail(const std::string& method, const std::string& why) const {
        throw std::runtime_error(at_.name() + ", " + method + ": " + why);
    }

    void require_valid(const pulse::schedule_problem& problem, const pulse::schedule& timed, double bound_us,
                       const std::string& method) {
        const auto violation = pulse::find_violation(problem, timed);
        if (violation.broken()) { fail(method, pulse::describe(violation)); }
        if (timed.makespan_us() < bound_us * (1 - 1e-9)) { fail(method, "the makespan is below the bound"); }
        ++found_.valid;
    }

    /// Plans a schedule and checks its programs; returns peak bytes on every device, parameters included.
    std::vector<std::int64_t> checked_peaks(const pulse::partition& cut, const pulse::schedule& timed,
                                            const std::string& method) {
        pulse::plan made{};
        made.model = costs_.model;
        made.pipeline_degree = at_.devices;
        made.microbatches = at_.microbatches;
        made.microbatch_size = costs_.microbatch_size;
        made.split_backward = at_.split;
        made.routing = ask_.routing;
        made.cut = cut;
        made.order = timed;
        const pulse::step_model model{made, costs_};
        const auto report = pulse::check(made, model, pulse::lower(made, model));
        if (!report.ok()) { fail(method, report.violation); }
        ++found_.checked;
        return pulse::peak_bytes(made, costs_, kept);
    }

    void add_row(const cut_problem& of, const pulse::schedule& timed, const std::string& method,
                 const std::vector<std::int64_t>& peaks, double seconds) {
        schedule_row row{};
        row.at = at_;
        row.method = method;
        row.placement = std::string{pulse::name_of(of.cut.kind)};
        row.makespan_us = timed.makespan_us();
        row.bound_us = of.bound_us;
        row.synthesized_us = synthesized_.makespan_us();
        row.peak_bytes = *std::max_element(peaks.begin(), peaks.end());
        const auto moved = pulse::traffic_of(of.cut, costs_, ask_.routing);
        row.boundary_bytes = moved.boundary() * at_.microbatches;
        row.skip_bytes = moved.skip() * at_.microbatches;
        row.seconds = seconds;
        if (of.problem.microbatches == at_.microbatches) { same_problem(row, of, timed); }
        if (folded_ && of.cut.kind != pulse::placement::folded) {
            row.folded_same_memory_us = in_bytes(row.peak_bytes);
        }
        rows_.push_back(std::move(row));
    }

    void synthesize() {
        const auto start = std::chrono::steady_clock::now();
        const auto listed = pulse::list_schedule(folded_->problem);
        const std::chrono::duration<double> list_took = std::chrono::steady_clock::now() - start;
        pulse::synthesis_options options{};
        options.limit.seconds = options_.seconds;
        const auto best = pulse::synthesize(folded_->problem, options);
        require_valid(folded_->problem, best.best, best.lower_bound_us, "synthesize");
        require_valid(folded_->problem, listed, folded_->bound_us, "list");
        synthesized_ = best.best;
        synthesized_peaks_ = checked_peaks(folded_->cut, best.best, "synthesize");
        add_row(*folded_, best.best, "synthesize", synthesized_peaks_, best.seconds);
        add_row(*folded_, listed, "list", checked_peaks(folded_->cut, listed, "list"), list_took.count());
    }

    void baseline(const cut_problem& of, schedule_method method) {
        const std::string name{pulse::name_of(method)};
        pulse::schedule timed{};
        const auto start = std::chrono::steady_clock::now();
        try {
            timed = pulse::baseline_schedule(of.problem, method);
        } catch (const pulse::input_error&) { // fewer microbatches than its order needs
            ++found_.undefined;
            return;
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        require_valid(of.problem, timed, of.bound_us, name);
        add_row(of, timed, name, checked_peaks(of.cut, timed, name), took.count());
    }

    /// Two opposite pipelines: validated, but nothing here runs them, so there is no plan to check. The peak is that of
    /// their holds and of all copies of the parameters of both stages.
    void bidirectional(const pulse::partition& cut) {
        if (at_.devices % 2 != 0 || at_.microbatches % 2 != 0) {
            ++found_.undefined;
            return;
        }
        const auto both = pulse::bench::make_bidirectional_problem(costs_, cut, ask_);
        const auto start = std::chrono::steady_clock::now();
        const auto timed = pulse::bench::chimera(both);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        std::vector<double> load(both.parameter_bytes.size(), 0.0);
        for (const auto& s : both.problem.stages) {
            load[static_cast<std::size_t>(s.device)] +=
                both.problem.microbatches * (s.forward_us + s.backward_input_us + s.backward_weight_us);
        }
        const double busiest = *std::max_element(load.begin(), load.end());
        require_valid(both.problem, timed, busiest, "chimera");
        auto peaks = pulse::peak_holds(both.problem, timed);
        for (std::size_t d = 0; d != peaks.size(); ++d) { peaks[d] += parameter_copies * both.parameter_bytes[d]; }
        add_row({cut, {}, busiest}, timed, "chimera", peaks, took.count());
        rows_.back().placement = "two ways";
        rows_.back().makespan_us = pulse::bench::step_us(both, timed);
        rows_.back().gradient_bytes = both.gradient_bytes;
    }

    /// Runs the synthesizer on the same problem where every device may hold as much as in `known`: first alone and, if
    /// that is worse, starting from `known`.
    void same_problem(schedule_row& row, const cut_problem& of, const pulse::schedule& known) {
        auto limited = of.problem;
        limited.memory_limit_bytes = pulse::peak_holds(limited, known);
        const bool serves = of.cut.kind == pulse::placement::folded && pulse::fits_memory(limited, synthesized_) &&
                            synthesized_.makespan_us() <= known.makespan_us();
        if (serves) {
            row.alone_us = row.same_problem_us = synthesized_.makespan_us();
            return;
        }
        pulse::synthesis_options options{};
        options.limit.seconds = options_.seconds;
        auto best = pulse::synthesize(limited, options);
        row.alone_us = best.makespan_us;
        if (best.makespan_us > known.makespan_us() * (1 + 1e-9)) {
            const std::array injected{known};
            best = pulse::synthesize(limited, options, injected);
        }
        require_valid(limited, best.best, best.lower_bound_us, "synthesize at a method's memory");
        row.same_problem_us = best.makespan_us;
    }

    /// Makespan of the synthesizer where every device has `bytes`, parameters included; 0 when nothing fits.
    [[nodiscard]] double in_bytes(std::int64_t bytes) {
        const auto worst = std::max_element(synthesized_peaks_.begin(), synthesized_peaks_.end());
        if (*worst <= bytes) { return synthesized_.makespan_us(); }
        auto limited = folded_->problem;
        for (int d = 0; d != at_.devices; ++d) {
            std::int64_t parameters = 0;
            for (const pulse::stage& s : folded_->cut.stages) {
                for (int l = s.first_layer; l <= s.last_layer && s.device == d; ++l) {
                    parameters += costs_.layers[static_cast<std::size_t>(l)].parameter_bytes;
                }
            }
            limited.memory_limit_bytes.push_back(std::max<std::int64_t>(0, bytes - parameter_copies * parameters));
        }
        pulse::synthesis_options options{};
        options.limit.seconds = options_.seconds;
        try {
            const auto best = pulse::synthesize(limited, options);
            require_valid(limited, best.best, best.lower_bound_us, "synthesize at a method's memory");
            return best.makespan_us;
        } catch (const pulse::infeasible_error&) { return 0; }
    }
};

ordered_json to_json(const schedule_row& r) {
    return {{"model", r.at.model},
            {"pipeline_degree", r.at.devices},
            {"waves", r.at.waves},
            {"microbatches", r.at.microbatches},
            {"split_backward", r.at.split},
            {"link", r.at.link},
            {"method", r.method},
            {"placement", r.placement},
            {"makespan_us", r.makespan_us},
            {"lower_bound_us", r.bound_us},
            {"synthesized_us", r.synthesized_us},
            {"same_problem_alone_us", r.alone_us},
            {"same_problem_us", r.same_problem_us},
            {"folded_same_memory_us", r.folded_same_memory_us},
            {"peak_memory_bytes", r.peak_bytes},
            {"boundary_bytes", r.boundary_bytes},
            {"skip_bytes", r.skip_bytes},
            {"gradient_bytes", r.gradient_bytes},
            {"seconds", r.seconds}};
}

void run(schedules_options options) {
    json_output json{options.json};
    if (options.quick) {
        if (options.models.empty()) { options.models = {"ddpm_cifar10"}; }
        options.pipeline = {2};
        options.times = {1, 2};
        options.seconds = std::min(options.seconds, 0.01);
    }
    if (options.models.empty()) {
        for (const auto& known : pulse::known_models) { options.models.emplace_back(known.name.view()); }
    }
    std::vector<schedule_row> rows{};
    counts found{};
    for (const auto& name : options.models) {
        const auto costs =
            pulse::analytic_costs(pulse::find_model(name)->graph, pulse::a100_80gb, options.microbatch_size, 2);
        for (const int devices : options.pipeline) {
            for (const int waves : options.waves) {
                for (const bool split : {true, false}) {
                    for (const auto& link : both_links) {
                        for (const int times : options.times) {
                            const schedule_case at{name, devices, waves, times * devices, split, link.name};
                            case_run{costs, at, link.link, options, found, rows}.run();
                        }
                    }
                }
            }
        }
    }
    ordered_json all{{"format", "pulse-bench-schedules/1"}, {"routing", options.routing}, {"seconds", options.seconds}};
    print_schedule_groups(rows, all["groups"]);
    const int lost = print_schedule_losses(rows, all["losses"]);
    std::printf(
        "\n%d schedules validated, %d plans checked; %d placements without a cut, %d orders not defined for the "
        "number of microbatches or devices\n",
        found.valid, found.checked, found.no_cut, found.undefined);
    std::printf("losses to a schedule of the same problem at the same memory: %d, wanted 0: %s\n", lost,
                lost == 0 ? "met" : "missed");
    all["validated"] = found.valid;
    all["checked"] = found.checked;
    all["lost_on_the_same_problem"] = lost;
    auto& list = all["rows"] = ordered_json::array();
    for (const auto& r : rows) { list.push_back(to_json(r)); }
    json.write(all);
}

} // namespace

void add_schedules_part(CLI::App& app) {
    auto* part = app.add_subcommand("schedules", "every schedule method on every backbone, validated and checked");
    const auto options = std::make_shared<schedules_options>();
    std::vector<std::string> names{};
    for (const auto& known : pulse::known_models) { names.emplace_back(known.name.view()); }
    part->add_option("--models", options->models, "only these backbones")->check(CLI::IsMember(names));
    part->add_option("--pipeline", options->pipeline, "only these P (2 4 8)")->check(CLI::Range(1, 64));
    part->add_option("--waves", options->waves, "only these W (1 2)")->check(CLI::Range(1, 8));
    part->add_option("--times", options->times, "microbatches, as multiples of P (1 2 4 8)")->check(CLI::Range(1, 64));
    part->add_option("--routing", options->routing, "skips of sequential and interleaved placements")
        ->check(CLI::IsMember({"direct", "relayed"}));
    part->add_option("--microbatch-size", options->microbatch_size, "samples (4)")->check(CLI::PositiveNumber);
    part->add_option("--seconds", options->seconds, "seconds of the synthesizer per instance (0.05)")
        ->check(CLI::PositiveNumber);
    part->add_flag("--quick", options->quick, "P 2, M 2 4, one small backbone, to see that it runs");
    part->add_option("--json", options->json, "also write every row to this file");
    part->callback([options] { run(*options); });
}

} // namespace pulse_bench
