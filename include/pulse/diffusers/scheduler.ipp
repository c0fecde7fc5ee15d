#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/scheduler.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/scheduler_settings.hpp>

namespace pulse::diffusers {

namespace detail {

enum class scheduler_class : std::uint8_t { ddim, pndm, ddpm, euler, dpm_solver };

/// Keys whose usual value is all that scheduler_settings stands for.
[[nodiscard]] inline nlohmann::json usual_scheduler_values() {
    return {{"solver_order", 2},
            {"algorithm_type", "dpmsolver++"},
            {"solver_type", "midpoint"},
            {"lower_order_final", true},
            {"final_sigmas_type", "zero"},
            {"lambda_min_clipped", nullptr},
            {"interpolation_type", "linear"},
            {"timestep_type", "discrete"}};
}

/// Keys that the settings have, and those that say how a sampler of another kind draws its noise and bounds its values.
inline constexpr std::array scheduler_keys{
    "num_train_timesteps",    "beta_schedule",    "beta_start",     "beta_end",         "prediction_type",
    "rescale_betas_zero_snr", "timestep_spacing", "steps_offset",   "set_alpha_to_one", "clip_sample",
    "clip_sample_range",      "variance_type",    "skip_prk_steps", "sample_max_value", "dynamic_thresholding_ratio"};

} // namespace detail

PULSE_INLINE train::scheduler_settings parse_scheduler(std::string_view text, std::string_view source) {
    using detail::scheduler_class;
    // Python writes this number, which is no JSON: no bound.
    std::string plain{text};
    constexpr std::string_view unbounded = "\"lambda_min_clipped\": -Infinity";
    if (const std::size_t at = plain.find(unbounded); at != std::string::npos) {
        plain.replace(at, unbounded.size(), "\"lambda_min_clipped\": null");
    }
    const nlohmann::json json = io::parse_json(plain, source);
    const io::json_field root{json, {source, "the scheduler", "a scheduler's config"}};
    const auto kind =
        root["_class_name"].one_of<scheduler_class>({{"DDIMScheduler", scheduler_class::ddim},
                                                     {"PNDMScheduler", scheduler_class::pndm},
                                                     {"DDPMScheduler", scheduler_class::ddpm},
                                                     {"EulerDiscreteScheduler", scheduler_class::euler},
                                                     {"DPMSolverMultistepScheduler", scheduler_class::dpm_solver}});
    const nlohmann::json usual = detail::usual_scheduler_values();
    for (const auto& [key, value] : json.items()) {
        const auto is_key = [&name = key](const char* known) { return known == name; };
        const bool known = std::any_of(detail::scheduler_keys.begin(), detail::scheduler_keys.end(), is_key);
        const bool off = value.is_null() || value == false;
        if (key.starts_with('_') || known || (off && !usual.contains(key)) ||
            usual.value(key, nlohmann::json{}) == value) {
            continue;
        }
        throw input_error(std::string{source} + ": " + io::printable(key) + " is " +
                          io::printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) +
                          (usual.contains(key) ? "; pulse draws with " + usual[key].dump() + " alone"
                                               : std::string{"; pulse does not know this key"}));
    }

    train::scheduler_settings read;
    read.spacing = kind == scheduler_class::euler || kind == scheduler_class::dpm_solver
                       ? train::timestep_spacing::linspace
                       : train::timestep_spacing::leading;
    read.set_alpha_to_one = kind != scheduler_class::pndm;
    read.clip_sample = kind == scheduler_class::ddim || kind == scheduler_class::ddpm;
    const auto take = [&](const char* name, auto& value, const auto& get) {
        if (root.has(name)) { value = get(root[name]); }
    };
    const auto number = [](const io::json_field& field) { return field.number(); };
    const auto boolean = [](const io::json_field& field) { return field.boolean(); };
    take("num_train_timesteps", read.train_steps, [](const io::json_field& field) { return field.small_integer(); });
    take("beta_schedule", read.betas, [](const io::json_field& field) {
        return field.one_of<train::beta_shape>({{"linear", train::beta_shape::linear},
                                                {"scaled_linear", train::beta_shape::scaled_linear},
                                                {"squaredcos_cap_v2", train::beta_shape::squared_cosine}});
    });
    take("beta_start", read.beta_start, number);
    take("beta_end", read.beta_end, number);
    take("rescale_betas_zero_snr", read.zero_terminal_snr, boolean);
    take("prediction_type", read.prediction, [](const io::json_field& field) {
        return field.one_of<train::prediction_type>({{"epsilon", train::prediction_type::epsilon},
                                                     {"v_prediction", train::prediction_type::velocity},
                                                     {"sample", train::prediction_type::sample}});
    });
    take("timestep_spacing", read.spacing, [](const io::json_field& field) {
        return field.one_of<train::timestep_spacing>({{"leading", train::timestep_spacing::leading},
                                                      {"trailing", train::timestep_spacing::trailing},
                                                      {"linspace", train::timestep_spacing::linspace}});
    });
    take("steps_offset", read.steps_offset, [](const io::json_field& field) { return field.small_integer(); });
    // Of other classes these keys are left over from another scheduler, and not read.
    if (kind == scheduler_class::ddim || kind == scheduler_class::pndm) {
        take("set_alpha_to_one", read.set_alpha_to_one, boolean);
    }
    if (kind == scheduler_class::ddim || kind == scheduler_class::ddpm) {
        take("clip_sample", read.clip_sample, boolean);
        take("clip_sample_range", read.clip_sample_range, number);
    }
    try {
        static_cast<void>(train::schedule_of(read));
    } catch (const input_error& why) { throw input_error(std::string{source} + ": " + why.what()); }
    return read;
}

PULSE_INLINE std::string print_scheduler(const train::scheduler_settings& settings) {
    constexpr std::array betas{"linear", "scaled_linear", "squaredcos_cap_v2"};
    constexpr std::array predictions{"epsilon", "v_prediction", "sample"};
    constexpr std::array spacings{"leading", "trailing", "linspace"};
    nlohmann::ordered_json out;
    out["_class_name"] = "DDIMScheduler";
    out["num_train_timesteps"] = settings.train_steps;
    out["beta_start"] = settings.beta_start;
    out["beta_end"] = settings.beta_end;
    out["beta_schedule"] = betas[static_cast<std::size_t>(settings.betas)];
    out["trained_betas"] = nullptr;
    out["clip_sample"] = settings.clip_sample;
    out["clip_sample_range"] = settings.clip_sample_range;
    out["set_alpha_to_one"] = settings.set_alpha_to_one;
    out["steps_offset"] = settings.steps_offset;
    out["prediction_type"] = predictions[static_cast<std::size_t>(settings.prediction)];
    out["thresholding"] = false;
    out["timestep_spacing"] = spacings[static_cast<std::size_t>(settings.spacing)];
    out["rescale_betas_zero_snr"] = settings.zero_terminal_snr;
    return out.dump(2) + "\n";
}

PULSE_INLINE train::scheduler_settings read_scheduler(const std::filesystem::path& folder) {
    const std::filesystem::path file = folder / "scheduler_config.json";
    return parse_scheduler(io::read_file(file), "'" + file.string() + "'");
}

} // namespace pulse::diffusers
