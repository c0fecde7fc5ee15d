#include "arguments.hpp"

#include <limits>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <pulse/hardware/device.hpp>

#include "../command_line.hpp"
#include "catalogue.hpp"

namespace pulse_plan {

using pulse_examples::choices;
using pulse_examples::kept_weights;
using pulse_examples::names_in;
using pulse_examples::number;
using pulse_examples::one_of;
using pulse_examples::optimizers;
using pulse_examples::read_arguments;
using pulse_examples::refuse;
using pulse_examples::whole;

std::optional<arguments> parse(int argc, char** argv, int& exit_code) {
    arguments a;
    CLI::App app{
        "Plans pipeline-parallel training: where to cut a model, which device runs what, and in which order.\n"
        "Whatever is not given is tuned. Exit status: 0 planned, 1 failed or stopped before there was a plan,\n"
        "2 bad argument or input file, 3 no feasible plan."};
    app.set_help_flag("-h,--help", "Print this help and exit");

    std::string models;
    for (const std::string& name : backbone_names()) { models += (models.empty() ? "" : "|") + name; }
    choices<std::string> devices;
    for (const pulse::device& known : pulse::known_devices) {
        if (known.tflops_16 > 0) { devices[known.name.str()] = known.name.str(); }
    }
    const choices<pulse::placement> placements{{"folded", pulse::placement::folded},
                                               {"sequential", pulse::placement::sequential},
                                               {"interleaved", pulse::placement::interleaved}};
    choices<pulse::schedule_method> methods;
    for (const pulse::method_rule& rule : pulse::method_rules) { methods[std::string{rule.name}] = rule.method; }
    const choices<bool> answers{{"yes", true}, {"no", false}};
    enum class sharding { no, yes, tuned } shared{sharding::no};
    const choices<sharding> shardings{{"yes", sharding::yes}, {"no", sharding::no}, {"tuned", sharding::tuned}};
    const choices<pulse::skip_routing> routings{{"direct", pulse::skip_routing::direct},
                                                {"relayed", pulse::skip_routing::relayed}};
    const choices<pulse::recomputation> recomputations{{"none", pulse::recomputation::none},
                                                       {"skips", pulse::recomputation::skips},
                                                       {"stages", pulse::recomputation::stages},
                                                       {"selective", pulse::recomputation::selective}};

    choices<pulse::frozen_mode> frozen_modes;
    for (const auto mode : {pulse::frozen_mode::none, pulse::frozen_mode::first, pulse::frozen_mode::bubbles,
                            pulse::frozen_mode::tuned}) {
        frozen_modes[std::string{pulse::name_of(mode)}] = mode;
    }

    const auto file = [&](const char* name, std::string& held, const char* meaning) {
        return app.add_option(name, held, meaning)->type_name("FILE");
    };
    const auto count = [&](const char* name, auto& held, int high, const char* meaning) {
        return app.add_option(name, held, meaning)->check(whole(1, high))->type_name("N");
    };
    const auto choice = [&](const char* name, auto& held, const auto& names, const char* meaning) {
        return app.add_option(name, held, meaning)->transform(one_of(names))->type_name(names_in(names));
    };

    app.option_defaults()->group("What to plan");
    CLI::Option* const model =
        app.add_option("--model", a.model,
                       "Backbone, 16-bit, for latents of its usual size or of this height and width; for several "
                       "sizes, the plan mixes their steps by SHARE (1); needs --device")
            ->type_name("[" + models + "][@HEIGHTxWIDTH[:SHARE],...]");
    CLI::Option* const config = app.add_option("--model-config", a.model_config,
                                               "Backbone of a diffusers folder instead of --model, for latents of its "
                                               "sample_size or of these heights and widths")
                                    ->type_name("DIR[@HEIGHTxWIDTH[:SHARE],...]");
    CLI::Option* const device = choice("--device", a.device, devices, "Device whose rates give the costs");
    CLI::Option* const profile =
        file("--profile", a.profile, "Measured costs (pulse-profile/1) instead of --model and --device");
    app.add_option("--cascade-with", a.cascade_with,
                   "A second backbone, trained on the same devices at the same time; requires --model or --profile")
        ->type_name("MODEL|PROFILE");
    count("--devices", a.asked.devices, 4096, "Total number of devices")->required();
    count("--global-batch", a.asked.global_batch, 1 << 20, "Samples of one training step, over all replicas")
        ->required();
    file("--cluster", a.cluster,
         "Nodes, links, memory and unlike devices (pulse-cluster/1); without it, one node with the device's own links");

    app.option_defaults()->group("Decided by you instead of tuned");
    count("--pipeline", a.asked.pipeline_degree, 64, "Pipeline degree");
    count("--data", a.asked.data_degree, 4096, "Data-parallel degree");
    count("--waves", a.asked.waves, 16, "Waves of a folded placement, or stages on each device when interleaved");
    count("--microbatch-size", a.asked.microbatch_size, 65536, "Samples of a microbatch");
    count("--microbatches", a.asked.microbatches, 65536, "Microbatches of a step of one pipeline");
    choice("--placement", a.asked.placement, placements, "Which device runs which stage");
    choice("--split-backward", a.asked.split_backward, answers, "Whether weight gradients are scheduled separately");
    choice("--routing", a.asked.routing, routings, "How skips between devices travel");
    choice("--recomputation", a.asked.recompute, recomputations,
           "Which forward passes are run again to save memory; selective: only in the stages where memory requires it");
    choice("--schedule", a.asked.schedule, methods,
           "Which method orders the passes; ilp: search, then proof by an integer program");
    choice("--shard-optimizer", shared, shardings,
           "Whether replicas share the optimizer's state (default: no); the run of the plan must set it too");
    choice("--gradient-release", a.asked.gradient_release, answers,
           "Whether a stage is updated as soon as its gradients are complete, so that other stages can use their "
           "memory; gradients are then either not clipped or clipped by the norm of the step before")
        ->default_str("no");
    choice("--optimizer", a.asked.optimizer.moments, optimizers,
           "AdamW, AdamW with 8-bit moments, or Adafactor, which keeps means of rows and columns")
        ->default_str("adamw");
    choice("--weights", a.asked.optimizer.weights, kept_weights,
           "What is kept beside the 16 bits of a weight: a master weight, the rounding error, or nothing")
        ->default_str("fp32");
    choice("--averages", a.asked.optimizer.averages, answers, "Whether a moving average of the weights is kept")
        ->default_str("yes");
    choice("--frozen", a.asked.frozen, frozen_modes,
           "Frozen networks: not planned (their results are read from a cache), run before the passes, run in the "
           "bubbles, or whichever is fastest if the model has any")
        ->default_str("tuned");
    app.add_flag("--self-conditioning", a.asked.self_conditioning,
                 "Half of the microbatches first run an extra forward pass, without a gradient, and read its result");
    app.add_option("--memory-limit", a.asked.memory_limit_bytes, "Memory of each device")
        ->check(number(std::int64_t{1}, std::numeric_limits<std::int64_t>::max(), "from 1"))
        ->type_name("BYTES");
    app.add_option(
           "--time-limit", a.asked.seconds,
           "Time to improve the best schedules and prove their bounds, without --schedule or with ilp; 0: neither")
        ->check(number(0.0, 1e6, "from 0 to 1000000"))
        ->type_name("S")
        ->capture_default_str();

    app.option_defaults()->group("Result");
    file("--out", a.out, "The plan (pulse-plan/1)");
    file("--svg", a.svg, "A picture of one step: passes, transfers, memory");
    file("--trace", a.trace, "The step as a trace for Perfetto or chrome://tracing");
    app.add_option("--torch", a.torch,
                   "The plan in the form that PyTorch's pipeline runtime runs (examples/torch_pipeline)")
        ->type_name("DIR");

    model->needs(device)->excludes(profile)->excludes(config);
    config->needs(device)->excludes(profile);
    device->excludes(profile);

    if (!read_arguments(app, "pulse_plan", argc, argv, exit_code)) { return std::nullopt; }
    a.asked.sharded_optimizer = shared == sharding::tuned ? std::nullopt : std::optional{shared == sharding::yes};
    if (a.model.empty() && a.model_config.empty() && a.profile.empty()) {
        return refuse("pulse_plan", "--model, --model-config or --profile is required", exit_code);
    }
    if (!a.model_config.empty() && !a.cascade_with.empty()) {
        return refuse("pulse_plan", "--cascade-with: requires --model or --profile", exit_code);
    }
    return a;
}

} // namespace pulse_plan
