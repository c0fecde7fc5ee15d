#include "argument_rules.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

#include <pulse/checkpoint/folder.hpp>
#include <pulse/core/error.hpp>
#include <pulse/data/text.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/diffusers/scheduler.hpp>
#include <pulse/diffusers/single_file_writer.hpp>

#include "../command_line.hpp"
#include "artifacts.hpp"
#include "run.hpp"

namespace pulse_train {

namespace {

/// Options that the plan of --plan decides.
constexpr const char* decided_by_plan[]{"--ranks",   "--global-batch",    "--pipeline",        "--replicas",
                                        "--waves",   "--microbatch-size", "--microbatches",    "--placement",
                                        "--routing", "--schedule",        "--recomputation",   "--split-backward",
                                        "--slack",   "--memory-limit",    "--plan-time",       "--profile",
                                        "--cluster", "--cluster-out",     "--gradient-release"};

/// The non-blank lines of a file. Throws input_error naming a line that is not UTF-8.
[[nodiscard]] std::vector<std::string> read_prompts(const std::string& file) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    std::vector<std::string> prompts;
    std::ifstream lines{file};
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
        if (++number == 1 && line.starts_with(byte_order_mark)) { line.erase(0, byte_order_mark.size()); }
        if (pulse::data::valid_utf8(line) != line.size()) {
            throw pulse::input_error{"--prompts: '" + file + "': line " + std::to_string(number) + " is not UTF-8"};
        }
        if (line.ends_with('\r')) { line.pop_back(); }
        if (line.find_first_not_of(" \t\r\v\f") != std::string::npos) { prompts.push_back(line); }
    }
    return prompts;
}

/// If --from is a one-file checkpoint, `from` becomes the folder with everything else.
void take_apart(arguments& a) {
    std::error_code unused;
    if (!pulse::diffusers::names_single_file(a.from) || std::filesystem::is_directory(a.from, unused)) {
        if (!a.config_of.empty()) {
            throw pulse::input_error{"--config-of: only for a one-file checkpoint, and --from '" + a.from +
                                     "' is not a .safetensors file"};
        }
        return;
    }
    if (!std::filesystem::exists(a.from, unused)) {
        throw pulse::input_error{"--from: '" + a.from + "' does not exist"};
    }
    a.from_file = a.from;
    const std::filesystem::path beside = std::filesystem::absolute(a.from, unused).parent_path();
    a.from = a.config_of.empty() ? beside.string() : a.config_of;
    if (a.config_of.empty() && !std::filesystem::exists(beside / "model_index.json", unused)) {
        throw pulse::input_error{"--from: '" + a.from_file +
                                 "' holds only weights; name a diffusers folder with configs, tokenizers and scheduler "
                                 "by --config-of DIR, such as 'hf download NAME --include \"*.json\" "
                                 "\"*.txt\" --local-dir DIR' fetches for its base model"};
    }
}

/// Whether two paths name one place; false if that cannot be determined, such as for a name that is too long.
[[nodiscard]] bool same_place(const std::filesystem::path& one, const std::filesystem::path& other) {
    std::error_code failed;
    const std::filesystem::path whole = std::filesystem::weakly_canonical(one, failed);
    return !failed && whole == std::filesystem::weakly_canonical(other, failed);
}

/// Sets the scheduler of a run without a folder.
void set_objective(arguments& a) {
    pulse::train::scheduler_settings& to = a.scheduler;
    if (to.betas == pulse::train::beta_shape::scaled_linear) {
        to.beta_start = 0.00085;
        to.beta_end = 0.012;
    }
    if (a.objective == objective_kind::flow) {
        const std::optional<double> shift = pulse_examples::number_in<double>(a.flow_shift);
        to.flow = {.shift = shift.value_or(1), .by_size = !shift};
    } else if (a.objective == objective_kind::edm) {
        to.edm.emplace().sigma_data = a.sigma_data;
    } else {
        to.prediction = static_cast<pulse::train::prediction_type>(a.objective);
    }
}

/// Refuses options for noise by betas, or for flow, in a run with another kind of noise.
void refuse_beside_objective(const CLI::App& app, const arguments& a) {
    const auto refuse = [&](const char* name, const char* why) {
        if (app.count(name) > 0) { throw pulse::input_error{std::string{name} + ": " + why}; }
    };
    if (a.scheduler.flow || a.scheduler.edm) {
        for (const char* name : {"--noise", "--zero-snr", "--min-snr"}) {
            refuse(name, "only for noise by betas; flow and EDM have none");
        }
        refuse("--sampler", "flow and EDM always draw by Euler's method");
    }
    if (!a.scheduler.edm) { refuse("--sigma-data", "only for --prediction edm"); }
    if (a.scheduler.flow) { return; }
    for (const char* name : {"--flow-shift", "--flow-times"}) { refuse(name, "only for --prediction flow"); }
}

/// Reads --validate, a folder or a share, and checks the options that go with it.
void read_validation(const CLI::App& app, const std::string& text, arguments& a) {
    if (text.empty()) {
        for (const char* name : {"--validate-every", "--validate-times", "--keep-best"}) {
            if (app.count(name) > 0) { throw pulse::input_error{std::string{name} + ": requires --validate"}; }
        }
        return;
    }
    const std::optional<double> share = pulse_examples::number_in<double>(text);
    std::error_code unused;
    if (!share || std::filesystem::is_directory(text, unused)) {
        a.validation_data = text;
    } else if (*share > 0 && *share < 1) {
        a.pictures.held_out = *share;
    } else {
        throw pulse::input_error{"--validate: must be a folder or a share between 0 and 1, not " + text};
    }
    if (!a.buckets.empty()) { throw pulse::input_error{"--validate: not with --buckets: validation uses one size"}; }
    if (a.steps == 0 && a.resume.empty()) {
        throw pulse::input_error{"--validate: not with --steps 0, which trains nothing"};
    }
}

/// Refuses options that do not go with a cascade, and options for cascades in other runs.
void apply_cascade_rules(const CLI::App& app, arguments& a) {
    if (a.cascade_with.empty()) {
        for (const char* name : {"--cascade-from", "--cascade-export", "--cascade-noise"}) {
            if (app.count(name) > 0) { throw pulse::input_error{std::string{name} + ": requires --cascade-with"}; }
        }
        return;
    }
    const auto refuse = [](const std::string& name, const char* why) { throw pulse::input_error{name + ": " + why}; };
    for (const char* name : {"--size", "--buckets", "--resample-positions"}) {
        if (app.count(name) > 0) {
            refuse(name, "not with --cascade-with, whose backbones have the sizes of their types");
        }
    }
    if (a.planning.self_conditioning) {
        refuse("--self-conditioning", "not with --cascade-with, which does not support it");
    }
    if (a.encode == encode_when::bubbles) {
        refuse("--encode", "must be each-step or once in a cascade, whose plan has no frozen tasks");
    }
    for (const char* name : {"--profile", "--profile-out"}) {
        if (app.count(name) > 0) { refuse(name, "a profile covers one backbone, but --cascade-with has two"); }
    }
    if (a.planning.seconds > 0 && app.count("--plan-time") > 0) {
        refuse("--plan-time", "must be 0 for a cascade, whose passes are ordered by list scheduling, without a search");
    }
    if (a.from.empty() && !a.cascade_from.empty()) {
        refuse("--cascade-from", "also requires --from, the folder of the first backbone");
    }
    if (!a.from.empty() && a.cascade_from.empty()) {
        refuse("--from", "in a cascade, also requires --cascade-from, the folder of the second backbone");
    }
    if (!a.cascade_export.empty() && a.cascade_from.empty() && !a.makes_folder()) {
        refuse("--cascade-export", "requires --cascade-from, a diffusers folder, or --init to write a new one");
    }
    if (a.cascade_export.empty() && a.makes_folder()) {
        refuse("--cascade-export", "required, because --init writes a folder for each backbone");
    }
    if (pulse::diffusers::names_single_file(a.cascade_export)) {
        refuse("--cascade-export", "must be a folder, not a .safetensors file");
    }
    if (!a.cascade_export.empty() && same_place(a.cascade_export, a.export_to)) {
        refuse("--cascade-export", "must differ from --export, the folder of the first backbone");
    }
}

} // namespace

void require_release(const arguments& a, const std::string& source) {
    const auto refuse = [&](const char* why) { throw pulse::input_error{source + ": " + why}; };
    if (!a.cascade_with.empty()) { refuse("not in a cascade, which waits for the gradients of both backbones"); }
    if (a.clip_norm > 0 && !a.clip_by_last_norm) {
        refuse("requires --clip 0 or --clip-by last, because the norm of a step is known only after its gradients are "
               "gone");
    }
    if (a.precision == precision_kind::fp16) {
        refuse("not with --precision fp16, where a step that overflows must leave all weights unchanged");
    }
}

void apply_rules(const CLI::App& app, const std::string& prompt_file, const std::string& validation, arguments& a) {
    take_apart(a);
    apply_cascade_rules(app, a);
    const bool on_cuda = a.backend == backend_kind::cuda;
    if (app.count("--precision") == 0) { a.precision = on_cuda ? precision_kind::bf16 : precision_kind::fp32; }
    if (!on_cuda && a.precision != precision_kind::fp32) {
        throw pulse::input_error{"--precision: must be fp32 with --backend host"};
    }
    if (a.optimizer.weights != pulse::weight_form::float32 && a.precision != precision_kind::bf16) {
        throw pulse::input_error{"--weights: must be fp32 unless --precision is bf16"};
    }
    a.optimizer.averages = a.average_decay > 0;
    if (a.clip_by_last_norm && a.clip_norm == 0) { throw pulse::input_error{"--clip-by: not with --clip 0"}; }
    if (!on_cuda && app.count("--gpus") > 0) { throw pulse::input_error{"--gpus: requires --backend cuda"}; }
    if (!on_cuda && a.time_engines_s > 0) { throw pulse::input_error{"--time-engines: requires --backend cuda"}; }
    if (!on_cuda && app.count("--deterministic") > 0) {
        throw pulse::input_error{"--deterministic: requires --backend cuda"};
    }
    if (a.transport != transport_kind::threads && 2 * a.time_engines_s > a.timeout_s) {
        throw pulse::input_error{
            "--time-engines: must be at most half of --timeout, because the other ranks wait for the one that times"};
    }
    if (a.transport != transport_kind::threads && app.count("--plan-time") > 0 &&
        2 * a.planning.seconds > a.timeout_s) {
        throw pulse::input_error{
            "--plan-time: must be at most half of --timeout, because the other ranks wait for the one that plans"};
    }
    if (on_cuda && app.count("--threads") > 0) { throw pulse::input_error{"--threads: requires --backend host"}; }
    if (!prompt_file.empty()) {
        a.prompts = read_prompts(prompt_file);
        if (a.prompts.empty()) { throw pulse::input_error{"--prompts: '" + prompt_file + "' has no text"}; }
    }
    if (a.resume.empty() && app.count("--data-changed") > 0) {
        throw pulse::input_error{"--data-changed: requires --resume"};
    }
    if (!a.prompts.empty() && a.from.empty()) {
        throw pulse::input_error{"--prompt: requires --from, a diffusers folder whose networks encode it"};
    }
    if (!a.classes.empty() && (a.from.empty() || !a.prompts.empty())) {
        throw pulse::input_error{a.from.empty()
                                     ? "--class: requires --from, a diffusers folder whose vae decodes the pictures"
                                     : "--class: not with --prompt, because pictures are drawn by one of the two"};
    }
    if (a.prompts.empty() && app.count("--negative") > 0) { throw pulse::input_error{"--negative: requires --prompt"}; }
    if (!a.draws_pictures() && app.count("--guidance") > 0) {
        throw pulse::input_error{"--guidance: requires --prompt or --class"};
    }
    if (!a.from.empty() && app.count("--sample") == 0) {
        a.sample = static_cast<int>(std::max(a.prompts.size() + a.classes.size(), a.control_pictures.size()));
    }
    if (a.makes_folder() && (a.steps != 0 || a.export_to.empty())) {
        throw pulse::input_error{
            "--init: requires --from, a diffusers folder, or --steps 0 and --export to write a new one"};
    }
    if (a.from.empty() && !a.init && !a.export_to.empty()) {
        throw pulse::input_error{
            "--export: requires --from, a diffusers folder, or --init and --steps 0 to write a new one"};
    }
    if (pulse::diffusers::names_single_file(a.export_to)) {
        if (app.count("--export-shard") > 0) {
            throw pulse::input_error{
                "--export-shard: not with an --export that ends in .safetensors, which is one file"};
        }
        if (a.makes_folder()) {
            throw pulse::input_error{"--export: must be a folder, not a .safetensors file, for --init without --from"};
        }
        if (same_place(a.export_to, std::filesystem::path{a.out} / checkpoint_name)) {
            throw pulse::input_error{"--export: '" + a.export_to + "' is the checkpoint from which the run resumes"};
        }
    }
    if (!a.makes_folder() && !a.tokenizer.empty()) {
        throw pulse::input_error{"--tokenizer: only for a folder that --init writes without --from"};
    }
    if (a.sample == 0 && a.sample_every != 0) {
        throw pulse::input_error{"--sample-every: nothing to draw: --sample is 0" +
                                 std::string{a.from.empty() ? "" : ", and no --prompt or --class is given"}};
    }
    for (const char* name : {"--sample", "--sample-every", "--resume", "--plan-only", "--export-of"}) {
        if (a.makes_folder() && app.count(name) > 0) {
            throw pulse::input_error{std::string{name} +
                                     ": not with --init without --from, which only writes a folder"};
        }
    }
    for (const char* name : {"--export-of", "--export-type", "--export-shard"}) {
        if (a.export_to.empty() && a.cascade_export.empty() && app.count(name) > 0) {
            throw pulse::input_error{std::string{name} + ": requires --export"};
        }
    }
    if (!a.size.empty()) { a.pictures.size = pulse_examples::extent_in(a.size); }
    if (!a.buckets.empty()) {
        a.pictures.buckets = pulse_examples::buckets_in(a.buckets);
        for (const char* name : {"--profile", "--profile-out"}) {
            if (app.count(name) > 0) {
                throw pulse::input_error{std::string{name} + ": a profile covers one size, but --buckets has several"};
            }
        }
    }
    read_validation(app, validation, a);
    const bool encodes_once = a.encode == encode_when::once;
    if (encodes_once == a.cache.empty()) {
        throw pulse::input_error{encodes_once ? "--encode once: requires --cache, a folder"
                                              : "--cache: requires --encode once"};
    }
    if (encodes_once && a.pictures.random_crop) {
        throw pulse::input_error{"--crop random: not with --encode once, because every crop is a new picture"};
    }
    if (encodes_once && a.pictures.shuffle_tags_behind) {
        throw pulse::input_error{"--shuffle-tags: not with --encode once, because every order is a new caption"};
    }
    for (const char* name : {"--buckets", "--encode", "--cache", "--crop", "--flip", "--masked-loss",
                             "--caption-dropout", "--on-bad-picture"}) {
        if (app.count(name) > 0) { a.said_of_pictures = name; }
    }
    for (const char* name : {"--captions", "--caption-column", "--on-missing-caption", "--shuffle-tags"}) {
        if (app.count(name) > 0) { a.said_of_captions = a.said_of_pictures = name; }
    }
    for (const char* name : {"--control-from", "--control-data", "--control-picture"}) {
        if (app.count(name) > 0) { a.said_of_control = name; }
    }
    if (app.count("--control-data") > 0) { a.said_of_pictures = "--control-data"; }
    if (!a.control_from.empty() && (!a.resume.empty() || a.init)) {
        throw pulse::input_error{std::string{"--control-from: "} +
                                 (a.init
                                      ? "not with --init, because a trained ControlNet is of no use with random weights"
                                      : "not with --resume, which restores the ControlNet")};
    }
    if (static_cast<std::size_t>(a.sample) < a.control_pictures.size() && a.draws_pictures()) {
        throw pulse::input_error{"--control-picture: given " + std::to_string(a.control_pictures.size()) +
                                 " times, but --sample draws only " + std::to_string(a.sample)};
    }
    if (!a.control_pictures.empty() && !a.draws_pictures()) {
        throw pulse::input_error{"--control-picture: requires --prompt"};
    }
    if (a.pictures.captions.folders != pulse::data::folder_names::nothing && !a.pictures.captions.column.empty()) {
        throw pulse::input_error{"--caption-column: not with --captions class, which takes folder names as captions"};
    }
    if (!a.from.empty()) {
        for (const char* name : {"--prediction", "--noise", "--zero-snr", "--flow-shift", "--sigma-data"}) {
            if (app.count(name) > 0) {
                throw pulse::input_error{std::string{name} + ": the scheduler of --from decides it"};
            }
        }
        try {
            static_cast<void>(pulse::diffusers::read_pipeline(a.from));
            a.scheduler = pulse::diffusers::read_scheduler(std::filesystem::path{a.from} / "scheduler");
        } catch (const pulse::input_error& e) {
            throw pulse::input_error{(a.config_of.empty() ? "--from: " : "--config-of: ") + std::string{e.what()}};
        }
        if (app.count("--model") == 0) { a.model = model_of_folder(a); }
        a.objective = objective_of(a.scheduler);
    } else {
        set_objective(a);
    }
    if (a.scheduler.flow) { a.scheduler.flow->times = a.flow_times; }
    refuse_beside_objective(app, a);
    if (a.scheduler.zero_terminal_snr && a.scheduler.prediction == pulse::train::prediction_type::epsilon) {
        throw pulse::input_error{"--zero-snr: not with --prediction epsilon, which says nothing about the image where "
                                 "all is noise; use v or sample"};
    }
    const bool processes = a.transport != transport_kind::threads;
    const bool by_nccl = a.transport == transport_kind::nccl;
    if (processes && on_cuda != by_nccl) {
        throw pulse::input_error{std::string{"--transport "} +
                                 (by_nccl ? "nccl: requires --backend cuda" : "mpi: requires --backend host")};
    }
    if (processes && app.count("--ranks") > 0) {
        throw pulse::input_error{std::string{"--ranks: with --transport "} + (by_nccl ? "nccl" : "mpi") +
                                 " the number of processes decides it"};
    }
    if (!processes && app.count("--timeout") > 0) {
        throw pulse::input_error{"--timeout: requires --transport mpi or nccl"};
    }
    for (const char* name : {"--rank", "--world-size", "--local-rank", "--store"}) {
        if (!by_nccl && app.count(name) > 0) {
            throw pulse::input_error{std::string{name} + ": requires --transport nccl"};
        }
    }
    if (a.planning.gradient_release) { require_release(a, "--gradient-release"); }
    if (!a.plan_file.empty()) {
        for (const char* name : decided_by_plan) {
            if (app.count(name) > 0) {
                throw pulse::input_error{std::string{name} + ": the plan of --plan decides it"};
            }
        }
    }
    if (a.steps > 0) {
        try {
            pulse::train::require_place(std::filesystem::path{a.out} / "plan.json");
        } catch (const pulse::input_error& e) { throw pulse::input_error{std::string{"--out: "} + e.what()}; }
    }
    a.pictures.data = a.data;
    a.pictures.networks = a.source();
    a.pictures.cache = a.cache;
    a.pictures.seed = a.seed;
    a.pictures.threads = a.threads;
    a.pictures.warn = [](const std::string& line) { std::fprintf(stderr, "pulse_train: %s\n", line.c_str()); };
    a.pictures.words = {.data = app.count("--data") > 0 ? "--data" : "--data, which is not given",
                        .conditioning = "--control-data",
                        .size = "--size",
                        .buckets = "--buckets",
                        .resample_positions = "--resample-positions",
                        .held_out = "--validate",
                        .networks = "--from",
                        .cache = "--cache",
                        .skip_bad_pictures = "--on-bad-picture skip",
                        .other_column = "--caption-column NAME",
                        .folder_captions = "--captions class",
                        .other_on_missing = "--on-missing-caption empty or skip"};
}

} // namespace pulse_train
