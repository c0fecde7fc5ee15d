#include "arguments.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/text_table.hpp>

#include "../command_line.hpp"
#include "argument_rules.hpp"
#include "run.hpp"
#include "setup.hpp"

namespace pulse_train {

using pulse_examples::choices;
using pulse_examples::extents;
using pulse_examples::names_in;
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

namespace {

/// Of what is left to the tuner.
constexpr const char* left_open = "tuned";

/// Whether replicas share the optimizer's state.
enum class sharding { no, yes, tuned };

/// What a process is told for itself: ranks may differ in it.
constexpr std::array<std::string_view, 5> of_one_process{"--threads", "--timeout", "--rank", "--world-size",
                                                         "--local-rank"};

/// The values of arguments, read when all is parsed: those that every rank must be given alike.
class common_arguments {
public:
    template <class T>
    void add(const std::string& name, const T& value) {
        if constexpr (std::is_same_v<T, std::string>) {
            all_.emplace_back(name, [&value] { return value; });
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            all_.emplace_back(name, [&value] {
                std::string all;
                for (const std::string& one : value) { all += one + '\n'; }
                return all;
            });
        } else if constexpr (std::is_same_v<T, std::vector<int>>) {
            all_.emplace_back(name, [&value] {
                std::string all;
                for (const int one : value) { all += std::to_string(one) + ' '; }
                return all;
            });
        } else if constexpr (std::is_floating_point_v<T>) {
            all_.emplace_back(name, [&value] { return pulse::exact_text(value); });
        } else if constexpr (std::is_integral_v<T>) {
            all_.emplace_back(name, [&value] { return std::to_string(value); });
        }
    }
    template <class T>
    void add(const std::string& name, const std::optional<T>& value) {
        all_.emplace_back(name, [&value] { return value ? std::to_string(*value) : std::string{left_open}; });
    }
    template <class T>
    void add(const std::string& name, const T& value, const choices<T>& names) {
        all_.emplace_back(name, [&value, &names] { return name_in(names, value); });
    }
    template <class T>
    void add(const std::string& name, const std::optional<T>& value, const choices<T>& names) {
        all_.emplace_back(name, [&value, &names] { return value ? name_in(names, *value) : std::string{left_open}; });
    }
    [[nodiscard]] std::vector<std::pair<std::string, std::string>> values() const {
        std::vector<std::pair<std::string, std::string>> read;
        for (const auto& [name, value] : all_) {
            if (std::find(of_one_process.begin(), of_one_process.end(), name) == of_one_process.end()) {
                read.emplace_back(name, value());
            }
        }
        return read;
    }

private:
    template <class T>
    [[nodiscard]] static std::string name_in(const choices<T>& names, const T& value) {
        const auto is_it = [&](const auto& one) { return one.second == value; };
        return std::find_if(names.begin(), names.end(), is_it)->first;
    }

    std::vector<std::pair<std::string, std::function<std::string()>>> all_{};
};

} // namespace

objective_kind objective_of(const pulse::train::scheduler_settings& scheduler) {
    if (scheduler.flow) { return objective_kind::flow; }
    if (scheduler.edm) { return objective_kind::edm; }
    return static_cast<objective_kind>(scheduler.prediction);
}

std::optional<arguments> parse(int argc, char** argv, int& exit_code) {
    arguments a;
    CLI::App app{
        "Trains a diffusion UNet on images in IDX files or on made-up latents, pipeline-parallel on ranks of the "
        "host or of CUDA devices, threads or processes, every skip on its device."};
    app.option_defaults()->always_capture_default();
    app.set_help_flag("-h,--help", "Say this and exit");

    choices<std::string> models;
    for (const char* name : {PULSE_TRAIN_MODELS}) { models.emplace(name, name); }
    for (const std::string& name : trained_models()) { models.emplace(name, name); }
    const choices<transport_kind> transports{
        {"threads", transport_kind::threads}, {"mpi", transport_kind::mpi}, {"nccl", transport_kind::nccl}};
    const choices<backend_kind> backends{{"host", backend_kind::host}, {"cuda", backend_kind::cuda}};
    const choices<precision_kind> precisions{{"bf16", precision_kind::bf16},
                                             {"fp16", precision_kind::fp16},
                                             {"tf32", precision_kind::tf32},
                                             {"fp32", precision_kind::fp32}};
    const choices<pulse::placement> placements{{"folded", pulse::placement::folded},
                                               {"sequential", pulse::placement::sequential},
                                               {"interleaved", pulse::placement::interleaved}};
    const choices<pulse::skip_routing> routings{{"direct", pulse::skip_routing::direct},
                                                {"relayed", pulse::skip_routing::relayed}};
    const choices<pulse::recomputation> recomputations{{"none", pulse::recomputation::none},
                                                       {"skips", pulse::recomputation::skips},
                                                       {"stages", pulse::recomputation::stages},
                                                       {"selective", pulse::recomputation::selective}};
    choices<pulse::schedule_method> methods;
    for (const pulse::method_rule& rule : pulse::method_rules) { methods[std::string{rule.name}] = rule.method; }
    const choices<sharding> shardings{{"yes", sharding::yes}, {"no", sharding::no}, {"tuned", sharding::tuned}};
    const choices<objective_kind> objectives{{"epsilon", objective_kind::epsilon},
                                             {"v", objective_kind::velocity},
                                             {"sample", objective_kind::sample},
                                             {"flow", objective_kind::flow},
                                             {"edm", objective_kind::edm}};
    const choices<pulse::train::time_density> densities{{"uniform", pulse::train::time_density::uniform},
                                                        {"logit-normal", pulse::train::time_density::logit_normal}};
    const choices<pulse::train::beta_shape> noises{{"linear", pulse::train::beta_shape::linear},
                                                   {"scaled-linear", pulse::train::beta_shape::scaled_linear},
                                                   {"cosine", pulse::train::beta_shape::squared_cosine},
                                                   {"sigmoid", pulse::train::beta_shape::sigmoid}};
    const choices<pulse::train::learning_rate_shape> rates{{"constant", pulse::train::learning_rate_shape::constant},
                                                           {"linear", pulse::train::learning_rate_shape::linear},
                                                           {"cosine", pulse::train::learning_rate_shape::cosine}};
    const choices<pulse::train::sampler_kind> samplers{{"ddim", pulse::train::sampler_kind::ddim},
                                                       {"dpm++", pulse::train::sampler_kind::dpm_solver}};
    const choices<pulse::train::tensor_part> parts{{"averages", pulse::train::tensor_part::average},
                                                   {"weights", pulse::train::tensor_part::weight}};
    const choices<bool> answers{{"yes", true}, {"no", false}};

    constexpr double largest = std::numeric_limits<double>::max();
    const auto positive = number(std::numeric_limits<double>::min(), largest, "above 0");
    const auto not_negative = number(0.0, largest, "from 0");
    const auto count = number(std::int64_t{0}, std::numeric_limits<std::int64_t>::max(), "from 0");
    const auto any_seed = number(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(), "from 0 to 2^64 - 1");

    const auto file_or_folder = [&](const char* name, std::string& value, const char* what, const char* meaning) {
        return app.add_option(name, value, meaning)->type_name(what);
    };
    common_arguments common;
    const auto value = [&](const char* name, auto& held, const CLI::Validator& check, const char* meaning) {
        common.add(name, held);
        return app.add_option(name, held, meaning)->check(check);
    };
    const auto choice = [&](const char* name, auto& held, const auto& names, const char* usual, const char* meaning) {
        common.add(name, held, names);
        return app.add_option(name, held, meaning)
            ->transform(one_of(names))
            ->type_name(names_in(names))
            ->default_str(usual);
    };
    const auto tuned_value = [&](const char* name, auto& held, const CLI::Validator& check, const char* meaning) {
        common.add(name, held);
        app.add_option(name, held, meaning)->check(check)->default_str(left_open);
    };

    app.option_defaults()->group("Data and result");
    file_or_folder(
        "--data", a.data, "DIR",
        "Folder with train-images-idx3-ubyte, plain or .gz, or, for a model that reads text, with captioned pictures "
        "(metadata.jsonl or .csv, .txt, .caption or .json beside them, .tar shards), which the networks of --from "
        "encode, or pictures in folders of classes; "
        "'synthetic': samples and what is known of them by the seed");
    value("--size", a.size, extents(),
          "Height and width in pixels of what is trained on and drawn, or one number for both; with --buckets, of what "
          "is drawn")
        ->type_name("HEIGHTxWIDTH")
        ->default_str("sample_size of --from, else the model's");
    const auto are_buckets = [](std::string& text) {
        return pulse_examples::buckets_in(text).area != pulse::extent{}
                   ? std::string{}
                   : "'" + text + "' is no AREA[:STEP[:MIN-MAX]], as 1024, 1024:64 or 1024x1024:64:512-2048 are";
    };
    value(
        "--buckets", a.buckets, CLI::Validator{are_buckets, ""},
        "See each captioned picture in that of several sizes which is nearest to its shape; all have about the pixels "
        "of AREA, a size or one number for both, are multiples of STEP (64) and have sides from MIN to MAX (half and "
        "twice the area's). The samples of a step are of one size")
        ->type_name("AREA[:STEP[:MIN-MAX]]")
        ->default_str("all are of --size");
    app.add_flag("--resample-positions", a.pictures.resample_positions,
                 "Let a model that has learned the positions of one size, as U-ViT has, read others: its positions are "
                 "interpolated");
    const choices<encode_when> encodings{
        {"each-step", encode_when::each_step}, {"once", encode_when::once}, {"bubbles", encode_when::bubbles}};
    choice("--encode", a.encode, encodings, "bubbles where such a plan fits",
           "When captioned pictures are encoded: before each step, once, into --cache, before the first, or in the "
           "bubbles of the step before, if the plan of --plan has them or there is one that fits into memory");
    file_or_folder("--cache", a.cache, "DIR",
                   "Folder of what --encode once makes; what is there already is not made again");
    const choices<bool> crops{{"random", true}, {"centre", false}};
    const choices<pulse::data::bad_picture> bad_pictures{{"skip", pulse::data::bad_picture::skip},
                                                         {"stop", pulse::data::bad_picture::stop}};
    choice("--crop", a.pictures.random_crop, crops, "centre", "Which part of a captioned picture is seen");
    choice("--flip", a.pictures.horizontal_flip, answers, "no", "Whether half of the captioned pictures are mirrored");
    choice("--masked-loss", a.pictures.masked_loss, answers, "no",
           "Whether errors in captioned pictures count by the alpha of the pixels under them: not where these are "
           "transparent");
    value("--caption-dropout", a.pictures.caption_dropout, number(0.0, 1.0, "from 0 to 1"),
          "Probability that a picture is seen without its caption");
    value("--shuffle-tags", a.pictures.shuffle_tags_behind, whole(0, 1000),
          "Tags of a caption, which commas part, are seen in another order each time, behind so many that stay where "
          "they are");
    pulse::data::caption_options& captions = a.pictures.captions;
    const choices<pulse::data::folder_names> caption_sources{{"files", pulse::data::folder_names::nothing},
                                                             {"class", pulse::data::folder_names::captions}};
    const choices<pulse::data::missing_caption> lacking{{"stop", pulse::data::missing_caption::stop},
                                                        {"empty", pulse::data::missing_caption::empty},
                                                        {"skip", pulse::data::missing_caption::skip}};
    choice("--captions", captions.folders, caption_sources, "files",
           "What captions are: metadata, files beside pictures or in shards, or the names of folders of classes, in "
           "data without others; 10_cat is cat, ten times in an epoch");
    common.add("--caption-column", captions.column);
    app.add_option("--caption-column", captions.column,
                   "Field of metadata, and of JSON beside pictures, that is the caption")
        ->type_name("NAME")
        ->default_str("text, else caption, else prompt");
    choice("--on-missing-caption", captions.on_missing, lacking, "stop",
           "What is done about a picture without a caption: it gets an empty one, or it is left out");
    choice("--on-bad-picture", a.pictures.on_bad_picture, bad_pictures, "stop",
           "What is done about a picture that cannot be read: another takes the place of one that is skipped");
    std::string validation;
    file_or_folder(
        "--validate", validation, "DIR or SHARE",
        "What is not trained on but judges the weights: a folder with pictures as in --data, or "
        "t10k-images-idx3-ubyte, or a share of the pictures of --data, such as 0.05, which are held out. "
        "The loss of all of them is taken at the same noise each time, before the first step of a run that is not "
        "resumed, every --validate-every steps, and behind the last unless the run is stopped")
        ->default_str("none");
    value("--validate-every", a.validate_every, count, "Steps between validations; 0: there are none between");
    value("--validate-times", a.validate_times, whole(1, 64),
          "At how many timesteps, as far from each other, the loss of a validation is taken");
    choice("--keep-best", a.keep_best, answers, "no",
           "Whether the checkpoint with the least loss of validation is kept, in the folder best");
    file_or_folder("--out", a.out, "DIR", "Folder for everything that the run leaves");
    file_or_folder(
        "--resume", a.resume, "PATH",
        "Continue from this checkpoint: a folder of checkpoints (the last one), one of them, or a merged file");
    choice("--data-changed", a.data_changed, answers, "no",
           "Whether a run that is resumed goes on where --data has other pictures or captions than it had");
    file_or_folder(
        "--from", a.from, "PATH",
        "Diffusers folder (model_index.json, unet, scheduler, ...) to begin from, or a checkpoint of one file "
        "(.safetensors) of Stable Diffusion 1.x, 2.x or XL: its weights and noise");
    file_or_folder(
        "--config-of", a.config_of, "DIR",
        "Diffusers folder that says what such a file does not: configs, tokenizers and scheduler; weights in "
        "it are not read. Without it, the folder that the file is in");
    file_or_folder(
        "--control-from", a.control_from, "DIR",
        "Folder of a ControlNet with whose weights the one of --model begins; without it, with those of the UNet of "
        "--from, which stay as they are in either case");
    std::string control_data;
    file_or_folder(
        "--control-data", control_data, "DIR",
        "Folder with a conditioning image of the name of each picture of --data, for a ControlNet; without it, "
        "metadata.jsonl or metadata.csv name them in conditioning_image, as they always do for a folder of --validate");
    common.add("--control-picture", a.control_pictures);
    app.add_option("--control-picture", a.control_pictures,
                   "Conditioning image of a picture that is drawn; may be given several times, for one prompt after "
                   "another")
        ->type_name("FILE")
        ->allow_extra_args(false)
        ->default_str("");
    file_or_folder("--cascade-from", a.cascade_from, "DIR",
                   "Diffusers folder of the second backbone of a cascade, as --from is of the first");
    file_or_folder("--cascade-export", a.cascade_export, "DIR",
                   "Where the diffusers folder of the second backbone of a cascade goes, as --export of the first");
    app.add_flag("--init", a.init,
                 "Begin with weights by --seed; those of --from, if it has any, are not read; without --from, but with "
                 "--steps 0 and --export: write a folder of such weights for --model, with its frozen networks and the "
                 "noise of --prediction and what goes with it");
    file_or_folder(
        "--tokenizer", a.tokenizer, "DIR",
        "Folder with the files of the tokenizer that a new folder gets (vocab.json and merges.txt, vocab.txt, "
        "spiece.model or tokenizer.json), or with such a folder for each: tokenizer, tokenizer_2");
    file_or_folder(
        "--export", a.export_to, "PATH",
        "Write a diffusers folder at the end, or a checkpoint of one file where it ends in .safetensors: that "
        "of --from with the backbone that was trained");
    choice("--export-of", a.export_part, parts, "averages", "Which of the weights of the backbone --export writes");
    bool export_halves = false;
    const choices<bool> export_types{{"fp32", false}, {"fp16", true}};
    choice("--export-type", export_halves, export_types, "fp32", "Type of the numbers that --export writes");
    value("--export-shard", a.export_shard_bytes, count,
          "Bytes of a file of weights, above which there are several; 0: one");
    value("--checkpoint-every", a.checkpoint_every, count, "Steps between checkpoints; 0: only at the end");
    value("--log-every", a.log_every, whole(1, 1'000'000),
          "Steps between lines of metrics.jsonl, which TensorBoard shows too");
    value("--keep", a.keep, whole(0, 1000000), "Checkpoints that stay, the last ones; 0: all");
    value("--sample", a.sample, whole(0, 4096), "Images to draw at the end; 0: none")
        ->default_str("64, or with --from one for each prompt or class, and each --control-picture");
    value("--sample-every", a.sample_every, count,
          "Steps between drawings before the end, which take the memory of one more pipeline; each goes into a folder "
          "of its "
          "own. 0: none");
    common.add("--prompt", a.prompts);
    app.add_option("--prompt", a.prompts,
                   "Draw a picture of this text, with the networks of --from; may be given several times")
        ->type_name("TEXT")
        ->allow_extra_args(false)
        ->default_str("");
    std::string prompt_file;
    file_or_folder("--prompts", prompt_file, "FILE", "The same for each line of a file");
    common.add("--class", a.classes);
    app.add_option("--class", a.classes,
                   "Draw a picture of this class, the place of its folder among all of --data by name, with the vae of "
                   "--from; may be given several times")
        ->check(whole(0, 1'000'000))
        ->type_name("NUMBER")
        ->allow_extra_args(false)
        ->default_str("");
    common.add("--negative", a.negative);
    app.add_option("--negative", a.negative, "Text that pictures are led away from")->type_name("TEXT");
    value("--guidance", a.guidance, not_negative,
          "How far pictures are led to their prompts or classes; 1: not at all");
    value("--sample-steps", a.sample_steps, whole(1, 1000), "Steps of the sampler for each image");
    choice("--sampler", a.sampler, samplers, "ddim",
           "How images are drawn: DDIM, or DPM-Solver++(2M), which needs fewer steps");

    app.option_defaults()->group("Where");
    choice("--backend", a.backend, backends, "host", "What computes: oneDNN on the host, or CUDA devices");
    choice("--precision", a.precision, precisions, "bf16 on cuda, fp32 on the host",
           "Scalars of a CUDA device; sums, weights and optimizer are floats always");
    app.add_option(
           "--gpus", a.gpus,
           "Devices by number, over which ranks are dealt, and the processes of a machine in their order; one may "
           "stand twice")
        ->delimiter(',')
        ->check(whole(0, 1023))
        ->type_name("NUMBER,...")
        ->default_str("all");
    value("--threads", a.threads, whole(1, 256), "Threads of each rank on the host");

    choice("--transport", a.transport, transports, "threads",
           "What ranks are: threads of this process, or processes that mpirun, srun or torchrun has started, which "
           "exchange messages by MPI (host) or NCCL (cuda)");
    value("--timeout", a.timeout_s, positive, "Seconds after which a process gives up waiting for another");

    app.option_defaults()->group("Among the processes of --transport nccl");
    constexpr int most_ranks = 1'000'000;
    value("--rank", a.identity.rank, whole(0, most_ranks), "This one, where no launcher's variables say it");
    value("--world-size", a.identity.world_size, whole(1, most_ranks), "How many there are");
    value("--local-rank", a.identity.local_rank, whole(0, most_ranks), "This one among those of its machine");
    file_or_folder(
        "--store", a.store, "HOST:PORT",
        "Where they meet, an address of rank 0; else PULSE_STORE, MASTER_ADDR and MASTER_PORT or the launcher "
        "say it");

    app.option_defaults()->group("Plan: what is not given is tuned from layers and links as they are measured");
    pulse::plan_request& plan = a.planning;
    plan.words = {.devices = "--ranks",
                  .global_batch = "--global-batch",
                  .cluster = "--cluster",
                  .memory_limit = "--memory-limit",
                  .pipeline_degree = "--pipeline",
                  .data_degree = "--replicas",
                  .waves = "--waves",
                  .microbatch_size = "--microbatch-size",
                  .microbatches = "--microbatches",
                  .split_backward = "--split-backward",
                  .slack = "--slack",
                  .sharded_optimizer = "--shard-optimizer",
                  .schedule = "--schedule",
                  .self_conditioning = "--self-conditioning",
                  .seconds = "--plan-time"};
    auto shard_optimizer = sharding::no;
    value("--ranks", a.ranks, whole(1, 64), "Ranks in all, where they are threads");
    value("--global-batch", plan.global_batch, whole(1, most_samples), "Samples of a step of all replicas")
        ->default_str("16 x 4 x replicas, or what of it is given");
    tuned_value("--pipeline", plan.pipeline_degree, whole(1, 64), "Ranks of a pipeline");
    tuned_value("--replicas", plan.data_degree, whole(1, 64),
                "Pipelines over which a step's microbatches are spread: the data-parallel degree");
    tuned_value("--waves", plan.waves, whole(1, 16),
                "Waves of a folded placement, or stages on each rank when interleaved");
    tuned_value("--microbatch-size", plan.microbatch_size, whole(1, 65536), "Samples in a microbatch");
    tuned_value("--microbatches", plan.microbatches, whole(1, 65536), "Microbatches in a step of a replica");
    choice("--placement", plan.placement, placements, left_open, "Which rank runs which stage");
    choice("--routing", plan.routing, routings, left_open, "How skips between ranks travel");
    choice("--recomputation", plan.recompute, recomputations, left_open,
           "What forwards are run again for less memory; selective: those of the stages that memory makes necessary");
    choice("--split-backward", plan.split_backward, answers, left_open, "Whether weight gradients are scheduled apart");
    choice("--shard-optimizer", shard_optimizer, shardings, "yes",
           "Each replica keeps optimizer state of its share of the weights")
        ->expected(0, 1)
        ->option_text("[" + names_in(shardings) + "]");
    value("--slack", plan.slack, number(0.0, 10.0, "from 0 to 10"), "Load above the optimum that fewer bytes may cost");
    value("--memory-limit", plan.memory_limit_bytes,
          number(std::int64_t{1}, std::numeric_limits<std::int64_t>::max(), "from 1"), "Bytes that each rank may take")
        ->default_str("its share of what there is");
    choice("--schedule", plan.schedule, methods, "all that are found in --plan-time",
           "Who orders the passes; ilp: search, then the integer program's proof");
    value("--plan-time", plan.seconds, number(0.0, 1e6, "from 0 to 1000000"),
          "Seconds to improve and prove the best orders, without --schedule or with ilp; 0: none");
    file_or_folder("--profile", a.profile, "FILE",
                   "Plan from these costs (pulse-profile/1) instead of measuring layers");
    file_or_folder("--cluster", a.cluster, "FILE", "Plan for these links (pulse-cluster/1) instead of measuring them");
    file_or_folder("--profile-out", a.profile_out, "FILE", "Write the costs of the plan's layers, for pulse_plan");
    file_or_folder("--cluster-out", a.cluster_out, "FILE", "Write the links between ranks, for pulse_plan");
    app.add_flag("--plan-only", a.plan_only, "Stop when there is a plan, which --out gets");
    file_or_folder("--plan", a.plan_file, "FILE", "Run this plan (pulse-plan/1) instead of making one");

    app.option_defaults()->group("Training");
    choice("--model", a.model, models, "that of --from, else ddpm_fmnist", "Backbone");
    common.add("--cascade-with", a.cascade_with);
    app.add_option("--cascade-with", a.cascade_with,
                   "Train this backbone too, at once and on the same data: one that reads an image, and behind its "
                   "channels what --model draws of it, several times smaller, enlarged. Pictures are drawn by one "
                   "after the other")
        ->transform(one_of(models))
        ->type_name("MODEL")
        ->default_str("none");
    value("--cascade-noise", a.cascade_noise, not_negative,
          "Standard deviation of noise in the small images that it reads, so that it forgives what is wrong with drawn "
          "ones, whose values are from -1 to 1");
    value("--steps", a.steps, count, "Optimizer steps in all");
    value("--time-limit", a.time_limit_s, not_negative, "Stop training after this many seconds; 0: never");
    value("--lr", a.learning_rate, positive, "Learning rate");
    value("--warmup", a.warmup, whole(0, 1'000'000'000), "Steps over which the learning rate rises");
    choice("--lr-schedule", a.learning_rate_shape, rates, "constant",
           "How the learning rate goes on: linear and cosine fall to 0 after the last of --steps");
    value("--clip", a.clip_norm, not_negative, "Largest norm of the whole gradient; 0: do not clip");
    value("--ema", a.average_decay, number(0.0, 1.0, "from 0 to 1"),
          "Decay of the weights' moving average, which draws the samples; 0: none is kept, weights draw them");
    choice(
        "--optimizer", a.optimizer.moments, pulse_examples::optimizers, "adamw",
        "Update rule: AdamW, AdamW whose moments have 8 bits each, or Adafactor: means of rows and columns for second "
        "moments and no first ones, decay 1 - t^-0.8, updates of a root mean square of 1 at most, times --lr (no "
        "relative steps, no scaled parameters)");
    choice("--weights", a.optimizer.weights, pulse_examples::kept_weights, "fp32",
           "Kept beside the value of a weight in --precision bf16: a master weight, what rounding left over in bf16, "
           "or nothing: values are rounded up or down by chance");
    choice(
        "--prediction", a.objective, objectives, "v",
        "What the network says: the noise, v, or the image without noise; flow: the way from the image to the noise, "
        "as in rectified flow; edm: what the preconditioning of Karras et al. leaves to it");
    const auto is_shift = [](std::string& text) {
        const double by = pulse_examples::number_in<double>(text).value_or(0);
        const bool good = by >= 1e-3 && by <= 1e3;
        return good || text == "size" ? std::string{}
                                      : "'" + text + "' is neither a number from 0.001 to 1000 nor 'size'";
    };
    value("--flow-shift", a.flow_shift, CLI::Validator{is_shift, ""},
          "How far the times of flow are moved to where more is noise: a number, 1 for not at all, or 'size': by the "
          "size of pictures")
        ->type_name("NUMBER or size");
    value("--sigma-data", a.sigma_data, number(1e-3, 1e3, "from 0.001 to 1000"),
          "Standard deviation of images for edm; latents, which are scaled, have about 1");
    choice("--flow-times", a.flow_times, densities, "logit-normal", "How the times of flow are spread in training");
    choice("--noise", a.scheduler.betas, noises, "cosine",
           "Noise schedule: betas of DDPM, of Stable Diffusion, along a squared cosine or along a sigmoid");
    choice("--zero-snr", a.scheduler.zero_terminal_snr, answers, "no",
           "Whether the noise schedule is rescaled so that nothing of the image is left at its end");
    common.add("--self-conditioning", plan.self_conditioning);
    app.add_flag("--self-conditioning", plan.self_conditioning,
                 "Train a model that reads twice as many channels as it answers with: the others are what it has "
                 "predicted of the image, in a preview that half of a step's microbatches have, else zeros");
    value("--min-snr", a.min_snr_gamma, not_negative,
          "Weigh a sample's loss by its signal-to-noise ratio up to this, as min-SNR does; 0: all weigh the same");
    value("--noise-offset", a.noise_offset, not_negative, "Standard deviation of noise that a channel has in common");
    value("--seed", a.seed, any_seed, "Seed of weights, order, times and noise");

    if (!read_arguments(app, "pulse_train", argc, argv, exit_code)) { return std::nullopt; }
    try {
        a.pictures.conditioning = control_data;
        apply_rules(app, prompt_file, validation, a);
    } catch (const pulse::input_error& e) { return refuse("pulse_train", e.what(), exit_code); }
    a.export_type = export_halves ? pulse::io::f16 : pulse::io::f32;
    plan.sharded_optimizer =
        shard_optimizer == sharding::tuned ? std::nullopt : std::optional{shard_optimizer == sharding::yes};
    a.common = common.values();
    return a;
}

} // namespace pulse_train
