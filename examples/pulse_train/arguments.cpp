#include "arguments.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <pulse/core/error.hpp>

#include "../command_line.hpp"
#include "argument_rules.hpp"
#include "option_adder.hpp"
#include "run.hpp"

namespace pulse_train {

using pulse_examples::number;
using pulse_examples::one_of;
using pulse_examples::read_arguments;
using pulse_examples::refuse;
using pulse_examples::whole;

const char* name_of(precision_kind precision) {
    switch (precision) {
    case precision_kind::bf16: return "bf16";
    case precision_kind::fp16: return "fp16";
    case precision_kind::tf32: return "tf32";
    default: return "fp32";
    }
}

objective_kind objective_of(const pulse::train::scheduler_settings& scheduler) {
    if (scheduler.flow) { return objective_kind::flow; }
    if (scheduler.edm) { return objective_kind::edm; }
    return static_cast<objective_kind>(scheduler.prediction);
}

namespace {

/// Options of training.
void add_training_options(option_adder& add, arguments& a, const choices<std::string>& models) {
    static const choices<objective_kind> objectives{{"epsilon", objective_kind::epsilon},
                                                    {"v", objective_kind::velocity},
                                                    {"sample", objective_kind::sample},
                                                    {"flow", objective_kind::flow},
                                                    {"edm", objective_kind::edm}};
    static const choices<pulse::train::time_density> densities{
        {"uniform", pulse::train::time_density::uniform}, {"logit-normal", pulse::train::time_density::logit_normal}};
    static const choices<pulse::train::beta_shape> noises{{"linear", pulse::train::beta_shape::linear},
                                                          {"scaled-linear", pulse::train::beta_shape::scaled_linear},
                                                          {"cosine", pulse::train::beta_shape::squared_cosine},
                                                          {"sigmoid", pulse::train::beta_shape::sigmoid}};
    static const choices<pulse::train::learning_rate_shape> rates{
        {"constant", pulse::train::learning_rate_shape::constant},
        {"linear", pulse::train::learning_rate_shape::linear},
        {"cosine", pulse::train::learning_rate_shape::cosine}};
    static const choices<bool> clip_norms{{"this", false}, {"last", true}};
    const auto any_seed = number(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(), "from 0 to 2^64 - 1");

    add.app.option_defaults()->group("Training");
    add.choice("--model", a.model, models, "that of --from, else ddpm_fmnist", "Backbone");
    add.common.add("--cascade-with", a.cascade_with);
    add.app
        .add_option(
            "--cascade-with", a.cascade_with,
            "Train this backbone too, at the same time and on the same data: one that reads an image and, in further "
            "channels, the several times smaller image of --model, enlarged. The two draw pictures one after the other")
        ->transform(one_of(models))
        ->type_name("MODEL")
        ->default_str("none");
    add.value("--cascade-noise", a.cascade_noise, not_negative(),
              "Standard deviation of the noise added to the small images (values from -1 to 1) that the second "
              "backbone reads, so that it tolerates faults in drawn ones");
    add.value("--steps", a.steps, steps(), "Total number of optimizer steps");
    add.value("--time-limit", a.time_limit_s, not_negative(), "Stop training after this many seconds; 0: never");
    add.value("--lr", a.learning_rate, positive(), "Learning rate");
    add.value("--warmup", a.warmup, whole(0, 1'000'000'000), "Steps over which the learning rate rises");
    add.choice("--lr-schedule", a.learning_rate_shape, rates, "constant",
               "How the learning rate develops: linear and cosine fall to 0 after the last of --steps");
    add.value("--clip", a.clip_norm, not_negative(), "Largest norm of the whole gradient; 0: do not clip");
    add.choice(
        "--clip-by", a.clip_by_last_norm, clip_norms, "this",
        "Whose norm --clip compares: this step's, or the last step's, in which case the first step is not clipped");
    add.value(
        "--ema", a.average_decay, number(0.0, 1.0, "from 0 to 1"),
        "Decay of the weights' moving average, which draws the samples; 0: none is kept, and the weights draw them");
    add.choice("--optimizer", a.optimizer.moments, pulse_examples::optimizers, "adamw",
               "Update rule: AdamW, AdamW with 8-bit moments, or Adafactor: second moments as means of rows and "
               "columns, no first moments, decay 1 - t^-0.8, updates with a root mean square of at most 1, times --lr "
               "(no relative steps, no scaled parameters)");
    add.choice("--weights", a.optimizer.weights, pulse_examples::kept_weights, "fp32",
               "What is kept beside each weight in --precision bf16: a master weight, the rounding error in bf16, or "
               "nothing, with values rounded up or down at random");
    add.choice("--prediction", a.objective, objectives, "v",
               "What the network predicts: the noise, v, or the image without noise; flow: the direction from the "
               "image to the noise, as in rectified flow; edm: what the preconditioning of Karras et al. leaves to it");
    const auto is_shift = [](std::string& text) {
        const double by = pulse_examples::number_in<double>(text).value_or(0);
        const bool good = by >= 1e-3 && by <= 1e3;
        return good || text == "size" ? std::string{}
                                      : "'" + text + "' is neither a number from 0.001 to 1000 nor 'size'";
    };
    add.value("--flow-shift", a.flow_shift, CLI::Validator{is_shift, ""},
              "How far the times of flow are shifted towards more noise: a number (1: not at all), or 'size': by the "
              "size of the pictures")
        ->type_name("NUMBER or size");
    add.value("--sigma-data", a.sigma_data, number(1e-3, 1e3, "from 0.001 to 1000"),
              "Standard deviation of the images for edm; about 1 for latents, which are scaled");
    add.choice("--flow-times", a.flow_times, densities, "logit-normal",
               "How the times of flow are distributed in training");
    add.choice("--noise", a.scheduler.betas, noises, "cosine",
               "Noise schedule: the betas of DDPM, of Stable Diffusion, along a squared cosine, or along a sigmoid");
    add.choice("--zero-snr", a.scheduler.zero_terminal_snr, yes_or_no(), "no",
               "Whether the noise schedule is rescaled so that nothing of the image is left at its end");
    add.common.add("--self-conditioning", a.planning.self_conditioning);
    add.app.add_flag("--self-conditioning", a.planning.self_conditioning,
                     "Train a model that reads twice as many channels as it outputs: the others hold its own "
                     "prediction of the image, from a preview that half of a step's microbatches have, or else zeros");
    add.value("--min-snr", a.min_snr_gamma, not_negative(),
              "Weight each sample's loss by its signal-to-noise ratio, capped at this value, as min-SNR does; 0: equal "
              "weights");
    add.value("--noise-offset", a.noise_offset, not_negative(),
              "Standard deviation of noise that is the same throughout a channel");
    add.value("--seed", a.seed, any_seed, "Seed of the weights, order, times and noise");
}

} // namespace

std::optional<arguments> parse(int argc, char** argv, int& exit_code) {
    arguments a;
    CLI::App app{
        "Trains a diffusion backbone, such as the UNet of a diffusers folder, on captioned pictures, on images in IDX "
        "files or on made-up samples, pipeline-parallel on ranks of the host or of CUDA devices, threads or "
        "processes."};
    app.option_defaults()->always_capture_default();
    app.set_help_flag("-h,--help", "Print this help and exit");

    choices<std::string> models;
    for (const char* name : {PULSE_TRAIN_MODELS}) { models.emplace(name, name); }
    for (const std::string& name : trained_models()) { models.emplace(name, name); }

    option_adder add{app};
    said_arguments said;
    add_data_options(add, a, said);
    add_plan_options(add, a, said);
    add_training_options(add, a, models);

    if (!read_arguments(app, "pulse_train", argc, argv, exit_code)) { return std::nullopt; }
    try {
        a.pictures.conditioning = said.control_data;
        apply_rules(app, said.prompt_file, said.validation, a);
    } catch (const pulse::input_error& e) { return refuse("pulse_train", e.what(), exit_code); }
    a.export_type = said.export_halves ? pulse::io::f16 : pulse::io::f32;
    a.planning.sharded_optimizer =
        said.shard_optimizer == sharding::tuned ? std::nullopt : std::optional{said.shard_optimizer == sharding::yes};
    a.common = add.common.values();
    return a;
}

} // namespace pulse_train
