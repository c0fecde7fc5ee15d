#include "arguments.hpp"

#include <iostream>
#include <map>

#include <CLI/CLI.hpp>

namespace pulse_train {

namespace {

template <class T>
auto one_of(const std::map<std::string, T>& names) {
    return CLI::CheckedTransformer(names, CLI::ignore_case).description("");
}

std::string names_in(const auto& names) {
    std::string text;
    for (const auto& [name, value] : names) { text += (text.empty() ? "" : "|") + name; }
    return text;
}

} // namespace

std::optional<arguments> parse(int argc, char** argv, int& exit_code) {
    arguments a;
    CLI::App app{"Trains a diffusion UNet on images in IDX files, pipeline-parallel on thread ranks, every skip on its device."};
    app.option_defaults()->always_capture_default();
    app.set_help_flag("-h,--help", "Say this and exit");

    const std::map<std::string, std::string> models{
        {"ddpm_fmnist", "ddpm_fmnist"}, {"ddpm_fmnist_small", "ddpm_fmnist_small"}};
    const std::map<std::string, pulse::placement> placements{{"folded", pulse::placement::folded},
                                                             {"sequential", pulse::placement::sequential}};
    const std::map<std::string, pulse::skip_routing> routings{{"direct", pulse::skip_routing::direct},
                                                              {"relayed", pulse::skip_routing::relayed}};
    const std::map<std::string, pulse::skip_policy> policies{{"resident", pulse::skip_policy::resident},
                                                             {"recomputed", pulse::skip_policy::recomputed}};
    const std::map<std::string, pulse::schedule_method> methods{{"list", pulse::schedule_method::list},
                                                                {"gpipe", pulse::schedule_method::gpipe},
                                                                {"1f1b", pulse::schedule_method::one_f_one_b}};
    const std::map<std::string, pulse::train::prediction_type> predictions{
        {"epsilon", pulse::train::prediction_type::epsilon}, {"v", pulse::train::prediction_type::velocity}};
    const std::map<std::string, bool> noises{{"linear", false}, {"cosine", true}};
    const std::map<std::string, bool> answers{{"yes", true}, {"no", false}};

    const std::string data = "Data and result", pipeline = "Pipeline", training = "Training";
    app.add_option("--data", a.data, "Folder with train-images-idx3-ubyte, plain or .gz")->group(data);
    app.add_option("--out", a.out, "Folder for everything that the run leaves")->group(data);
    app.add_option("--resume", a.resume, "Continue from this checkpoint")->group(data)->option_text("FILE");
    app.add_option("--checkpoint-every", a.checkpoint_every, "Steps between checkpoints; 0: only at the end")->group(data)->check(CLI::NonNegativeNumber);
    app.add_option("--sample", a.sample, "Images to draw at the end; 0: none")->group(data)->check(CLI::Range(0, 4096));
    app.add_option("--sample-steps", a.sample_steps, "DDIM steps of each image")->group(data)->check(CLI::Range(1, 1000));

    app.add_option("--ranks", a.ranks, "Pipeline ranks")->group(pipeline)->check(CLI::Range(1, 64));
    app.add_option("--threads", a.threads, "Threads of each rank")->group(pipeline)->check(CLI::Range(1, 256));
    app.add_option("--waves", a.waves, "Waves of a folded placement")->group(pipeline)->check(CLI::Range(1, 16));
    app.add_option("--microbatch-size", a.microbatch_size, "Samples in a microbatch")->group(pipeline)->check(CLI::Range(1, 65536));
    app.add_option("--microbatches", a.microbatches, "Microbatches in a step")->group(pipeline)->check(CLI::Range(1, 65536));
    app.add_option("--placement", a.placement, "Which device runs which stage: " + names_in(placements))->group(pipeline)->transform(one_of(placements))->default_str("folded");
    app.add_option("--routing", a.routing, "How skips travel in a sequential placement: " + names_in(routings))->group(pipeline)->transform(one_of(routings))->default_str("relayed");
    app.add_option("--skips", a.skips, "How skips wait for the decoder: " + names_in(policies))->group(pipeline)->transform(one_of(policies))->default_str("resident");
    app.add_option("--schedule", a.method, "Who orders the passes: " + names_in(methods))->group(pipeline)->transform(one_of(methods))->default_str("list");
    app.add_option("--split-backward", a.split_backward, "Schedule weight gradients apart: " + names_in(answers))->group(pipeline)->transform(one_of(answers))->default_str("yes");
    app.add_option("--slack", a.slack, "Load above the optimum that fewer bytes may cost")->group(pipeline)->check(CLI::Range(0.0, 10.0));
    app.add_option("--plan", a.plan_file, "Run this plan (pulse-plan/1) instead of making one")->group(pipeline)->option_text("FILE");

    app.add_option("--model", a.model, "Backbone: " + names_in(models))->group(training)->transform(one_of(models));
    app.add_option("--steps", a.steps, "Optimizer steps in all")->group(training)->check(CLI::NonNegativeNumber);
    app.add_option("--time-limit", a.time_limit_s, "Stop training after this many seconds; 0: never")->group(training)->check(CLI::NonNegativeNumber);
    app.add_option("--lr", a.learning_rate, "Learning rate of AdamW")->group(training)->check(CLI::PositiveNumber);
    app.add_option("--warmup", a.warmup, "Steps over which the learning rate rises")->group(training)->check(CLI::NonNegativeNumber);
    app.add_option("--clip", a.clip_norm, "Largest norm of the whole gradient; 0: do not clip")->group(training)->check(CLI::NonNegativeNumber);
    app.add_option("--ema", a.average_decay, "Decay of the weights' moving average, which draws the samples")->group(training)->check(CLI::Range(0.0, 1.0));
    app.add_option("--prediction", a.prediction, "What the network says: " + names_in(predictions))->group(training)->transform(one_of(predictions))->default_str("v");
    app.add_option("--noise", a.cosine_noise, "Noise schedule: " + names_in(noises))->group(training)->transform(one_of(noises))->default_str("cosine");
    app.add_option("--seed", a.seed, "Seed of weights, order, times and noise")->group(training);

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        if (e.get_exit_code() == 0) {
            exit_code = app.exit(e);
        } else {
            std::cerr << "pulse_train: " << e.what() << '\n';
            exit_code = 2;
        }
        return std::nullopt;
    }
    if (!a.plan_file.empty()) {
        for (const char* name : {"--ranks", "--waves", "--microbatch-size", "--microbatches", "--placement", "--routing", "--skips",
                                 "--schedule", "--split-backward", "--slack"}) {
            if (app.count(name) > 0) {
                std::cerr << "pulse_train: " << name << ": the plan of --plan decides it\n";
                exit_code = 2;
                return std::nullopt;
            }
        }
    }
    return a;
}

} // namespace pulse_train
