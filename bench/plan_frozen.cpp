#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <pulse/hardware/device.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/zoo/frozen_parts.hpp>
#include <pulse/zoo/known_models.hpp>

#include "frozen_rows.hpp"
#include "json_output.hpp"
#include "plan_parts.hpp"

namespace pulse_bench {

namespace {

struct frozen_options {
    std::int64_t nodes{20'000};
    std::string parts{"vae"};
    int microbatch_size{4};
    std::vector<int> pipeline{2, 4, 8};
    bool each{};
    bool markdown{};
    std::string json{};
};

/// The backbones with their frozen parts: each split and unsplit, with free memory and 1F1B's.
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

void run(const frozen_options& options) {
    json_output json{options.json};
    pulse::synthesis_options passes{};
    passes.limit = {.nodes = options.nodes};
    std::vector<frozen_row> rows{};
    for (const auto& one : zoo_cases(options)) {
        rows.push_back(measure_frozen(one, pulse::synthesize(one.problem, passes)));
        if (options.each) { print_row(rows.back()); }
    }
    auto all = report_frozen(rows, options.markdown);
    all["nodes"] = options.nodes;
    json.write(all);
}

} // namespace

void add_frozen_part(CLI::App& app) {
    auto* part = app.add_subcommand("frozen", "frozen work in the bubbles: makespan against the certified bound, and "
                                              "against encoding first");
    const auto options = std::make_shared<frozen_options>();
    part->add_option("--nodes", options->nodes,
                     "search nodes of the synthesizer per instance (20000), so that figures do not depend on a clock")
        ->check(CLI::PositiveNumber);
    part->add_option("--parts", options->parts, "vae, or all frozen parts, including text encoders")
        ->check(CLI::IsMember({"vae", "all"}));
    part->add_option("--microbatch-size", options->microbatch_size, "samples (4)")->check(CLI::PositiveNumber);
    part->add_option("--pipeline", options->pipeline, "only these P (2 4 8)")->check(CLI::IsMember({2, 4, 8, 16}));
    part->add_flag("--each", options->each, "print every instance");
    part->add_flag("--markdown", options->markdown, "print the table as Markdown");
    part->add_option("--json", options->json, "also write the figures to this file");
    part->callback([options] { run(*options); });
}

} // namespace pulse_bench
