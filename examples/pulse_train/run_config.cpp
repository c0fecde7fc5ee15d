#include "run_config.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

#include <pulse/checkpoint/reader.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/core/text_table.hpp>
#include <pulse/frozen/picture_source.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/tune/plan_request.hpp>

#include "artifacts.hpp"
#include "data_changes.hpp"

namespace pulse_train {

namespace {

/// A checksum of the first bytes of each tensor as stored.
[[nodiscard]] std::string text_of_weights(const pulse::diffusers::weights& of) {
    pulse::fingerprint all;
    for (const auto& [name, tensor] : of.tensors()) {
        const auto bytes = tensor.bytes();
        all.add(name).add(
            std::string_view{reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 1024)});
    }
    return all.text();
}

/// The name of the noise schedule; a folder's own betas, and the numbers of flow and EDM, are spelled out.
[[nodiscard]] std::string text_of_noise(const arguments& a) {
    if (a.scheduler.flow) {
        const pulse::train::rectified_flow& flow = *a.scheduler.flow;
        const std::string shift = flow.by_size ? "by size from " + pulse::exact_text(flow.base_shift) + " at " +
                                                     std::to_string(flow.base_image_seq_len) + " to " +
                                                     pulse::exact_text(flow.max_shift) + " at " +
                                                     std::to_string(flow.max_image_seq_len)
                                               : pulse::exact_text(flow.shift);
        const bool uniform = flow.times == pulse::train::time_density::uniform;
        return "flow of " + std::to_string(flow.train_steps) + ", shift " + shift + ", times " +
               (uniform ? "uniform" : "logit-normal");
    }
    if (a.scheduler.edm) {
        const pulse::train::edm_noise& edm = *a.scheduler.edm;
        return "sigma_data " + pulse::exact_text(edm.sigma_data) + (edm.velocity ? ", v" : "");
    }
    const std::vector<double>& betas = a.scheduler.trained_betas;
    if (betas.empty()) { return std::map<std::string, std::string>(a.common.begin(), a.common.end()).at("--noise"); }
    pulse::fingerprint all;
    for (const double beta : betas) { all.add(pulse::exact_text(beta)); }
    return "trained_betas (" + all.text() + ")";
}

/// The config of the run that wrote a checkpoint; keys missing in an older one get the value that every run had then.
[[nodiscard]] std::map<std::string, std::string> config_at(const std::filesystem::path& checkpoint) {
    auto config = pulse::train::checkpoint_reader{checkpoint}.state().config;
    config.merge(std::map<std::string, std::string>{{"replicas", "1"},
                                                    {"zero_snr", "no"},
                                                    {"min_snr", "0"},
                                                    {"noise_offset", "0"},
                                                    {"held_out", "0"},
                                                    {"self_conditioning", "no"},
                                                    {"deterministic", "yes"},
                                                    {"learning_rate_schedule", "constant"}});
    return config;
}

} // namespace

std::map<std::string, std::string> config_of(const run_inputs& in) {
    const arguments& a = in.args;
    const std::map<std::string, std::string> said(a.common.begin(), a.common.end());
    std::string rates = said.at("--lr-schedule");
    if (a.learning_rate_shape != pulse::train::learning_rate_shape::constant) {
        rates += " over " + std::to_string(a.steps) + " steps";
    }
    const std::string images =
        in.pictures != nullptr
            ? in.pictures->text()
            : (a.data == synthetic_data ? a.data + " " : "") + std::to_string(in.images->size()) +
                  (a.pictures.size == pulse::extent{}
                       ? ""
                       : ", " + std::to_string(in.shape.height) + " x " + std::to_string(in.shape.width));
    std::map<std::string, std::string> all{
        {"model", a.model},
        {"images", images},
        {"prediction", said.at("--prediction")},
        {"noise", text_of_noise(a)},
        {"zero_snr", said.at("--zero-snr")},
        {"min_snr", pulse::exact_text(a.min_snr_gamma)},
        {"noise_offset", pulse::exact_text(a.noise_offset)},
        {"learning_rate", pulse::exact_text(a.learning_rate)},
        {"learning_rate_schedule", rates},
        {"warmup", std::to_string(a.warmup)},
        {"clip", pulse::exact_text(a.clip_norm) + (a.clip_by_last_norm ? " by the last norm" : "")},
        {"ema", pulse::exact_text(a.average_decay)},
        {"seed", std::to_string(a.seed)},
        {"held_out", pulse::exact_text(a.pictures.held_out)},
        {"self_conditioning", a.planning.self_conditioning ? "yes" : "no"},
        {"deterministic", a.deterministic ? "yes" : "no"},
        {"microbatch_size", std::to_string(in.plan.microbatch_size)},
        {"microbatches", std::to_string(in.plan.microbatches)},
        {"replicas", std::to_string(in.plan.data_degree)}};
    if (in.hint_elements() != 0) {
        all["locked weights (--from)"] = in.start == nullptr ? "by seed" : text_of_weights(*in.start);
    }
    return all;
}

std::map<std::string, std::string> cascade_config_of(const run_inputs& both, const run_inputs& second) {
    std::map<std::string, std::string> all = config_of(both);
    all["cascade_with"] = second.args.model;
    all["cascade_noise"] = pulse::exact_text(second.args.cascade_noise);
    return all;
}

void complete_batch(run_inputs& in) {
    pulse::plan_request& asked = in.args.planning;
    if (!in.args.resume.empty()) {
        auto before = config_at(in.resume_from);
        const auto keep = [&](std::optional<int>& value, const char* key) {
            const std::string& text = before[key];
            int had = 0;
            std::from_chars(text.data(), text.data() + text.size(), had);
            if (!value && had > 0) { value = had; }
        };
        keep(asked.microbatch_size, "microbatch_size");
        keep(asked.microbatches, "microbatches");
        keep(asked.data_degree, "replicas");
    }
    const std::int64_t batch = std::int64_t{asked.microbatch_size.value_or(16)} * asked.microbatches.value_or(4) *
                               asked.data_degree.value_or(1);
    if (asked.global_batch > 0) {
        const bool decided = asked.microbatch_size && asked.microbatches && asked.data_degree;
        if (!in.args.resume.empty() && decided && batch != asked.global_batch) {
            throw pulse::input_error{"--global-batch: with the batch settings of --resume, a step has " +
                                     std::to_string(batch) + " samples, not " + std::to_string(asked.global_batch)};
        }
        return;
    }
    if (batch > most_samples) {
        throw pulse::input_error{"--global-batch: a step of " + std::to_string(batch) +
                                 " samples exceeds the maximum of " + std::to_string(most_samples)};
    }
    asked.global_batch = static_cast<int>(batch);
}

pulse::train::checkpoint_place checkpoints_of(const run_inputs& in) {
    // The checksum of plan.json identifies the plan.
    const std::string text = pulse::print_plans(in.planned().plans());
    char sum[9];
    std::snprintf(sum, sizeof sum, "%08lx", ::crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
    return {.folder = in.file(checkpoints_name), .keep = in.args.keep, .plan = sum};
}

pulse::train::checkpoint_place best_of(const run_inputs& in) {
    pulse::train::checkpoint_place place = checkpoints_of(in);
    place.folder = in.file(best_name);
    place.keep = 1;
    return place;
}

void require_same_config(const run_inputs& in) {
    const auto before = config_at(in.resume_from);
    const bool trains = pulse::train::checkpoint_reader{in.resume_from}.state().step < in.args.steps;
    for (const auto& [key, value] : in.config) {
        if (key == "learning_rate_schedule" && !trains) { continue; } // no step is left to use it
        const auto found = before.find(key);
        if (found != before.end() && key == "images" && same_images(in, found->second)) { continue; }
        if (found == before.end() || found->second != value) {
            const std::string had = found == before.end() ? "unset" : found->second;
            throw pulse::input_error{"--resume: '" + in.args.resume + "': its run had " + key + " " + had +
                                     ", this one has " + value};
        }
    }
}

} // namespace pulse_train
