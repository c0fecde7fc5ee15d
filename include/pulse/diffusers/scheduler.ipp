#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/scheduler.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>
#include <pulse/train/edm.hpp>
#include <pulse/train/flow.hpp>
#include <pulse/train/noise_process.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/scheduler_settings.hpp>

namespace pulse::diffusers {

namespace detail {

/// A class of diffusers with betas, and what it has where a file has no such key.
struct scheduler_class {
    std::string_view name{}; ///< without "Scheduler"
    train::timestep_spacing spacing{train::timestep_spacing::linspace};
    bool latent{};      ///< its betas are those of latent diffusion
    bool clips{};       ///< it has clip_sample, which is true
    bool reads_alpha{}; ///< it has set_alpha_to_one
    bool set_alpha_to_one{true};
};

inline constexpr auto leading = train::timestep_spacing::leading;
inline constexpr std::array<scheduler_class, 21> scheduler_classes{
    {{"DDIM", leading, false, true, true},
     {"DDIMInverse", leading, false, true, true},
     {"DDIMParallel", leading, false, true, true},
     {"DDPM", leading, false, true},
     {"DDPMParallel", leading, false, true},
     {"PNDM", leading, false, false, true, false},
     {"LCM", leading, true},
     {"TCD", leading, true},
     {"DEISMultistep"},
     {"DPMSolverMultistep"},
     {"DPMSolverMultistepInverse"},
     {"DPMSolverSinglestep"},
     {"EulerAncestralDiscrete"},
     {"EulerDiscrete"},
     {"LMSDiscrete"},
     {"SASolver"},
     {"UniPCMultistep"},
     {"DPMSolverSDE", train::timestep_spacing::linspace, true},
     {"HeunDiscrete", train::timestep_spacing::linspace, true},
     {"KDPM2AncestralDiscrete", train::timestep_spacing::linspace, true},
     {"KDPM2Discrete", train::timestep_spacing::linspace, true}}};

/// The class of that name; throws input_error for one that adds noise otherwise.
[[nodiscard]] inline const scheduler_class& scheduler_class_of(const io::json_field& name) {
    const std::string text = name.text();
    const auto* const found = std::ranges::find_if(scheduler_classes, [&](const scheduler_class& one) {
        return text.starts_with(one.name) && std::string_view{text}.substr(one.name.size()) == "Scheduler";
    });
    if (found != scheduler_classes.end()) { return *found; }
    name.fail("is '" + io::printable(text) +
              "', which is none of those of diffusers that add noise by betas, such as DDIMScheduler, by flow matching "
              "or as EDM does");
}

/// Keys that decide nothing but how pictures are drawn, in any class of any version of diffusers.
inline constexpr std::array drawing_keys{"algorithm_type",
                                         "clip_sample",
                                         "clip_sample_range",
                                         "corrector_order",
                                         "disable_corrector",
                                         "dynamic_thresholding_ratio",
                                         "euler_at_final",
                                         "final_sigmas_type",
                                         "flow_shift",
                                         "interpolation_type",
                                         "lambda_min_clipped",
                                         "lower_order_final",
                                         "noise_sampler_seed",
                                         "original_inference_steps",
                                         "predict_x0",
                                         "predictor_order",
                                         "sample_max_value",
                                         "set_alpha_to_one",
                                         "shift_terminal",
                                         "sigma_max",
                                         "sigma_min",
                                         "skip_prk_steps",
                                         "solver_order",
                                         "solver_p",
                                         "solver_type",
                                         "stochastic_sampling",
                                         "steps_offset",
                                         "tau_func",
                                         "tensor_format",
                                         "thresholding",
                                         "time_shift_type",
                                         "timestep_scaling",
                                         "timestep_values",
                                         "timestep_spacing",
                                         "use_beta_sigmas",
                                         "use_dynamic_shifting",
                                         "use_exponential_sigmas",
                                         "use_karras_sigmas",
                                         "use_lu_lambdas",
                                         "variance_type",
                                         "set_alpha_to_zero"};

inline constexpr std::array training_keys{
    "num_train_timesteps",   "beta_schedule",   "beta_start",    "beta_end",
    "trained_betas",         "prediction_type", "timestep_type", "use_flow_sigmas",
    "rescale_betas_zero_snr"};

/// Reads keys of a scheduler into values that stand where a file has none.
struct scheduler_keys {
    const io::json_field& root;

    void operator()(const char* name, double& value) const {
        if (root.has(name)) { value = root[name].number(); }
    }
    void operator()(const char* name, int& value) const {
        if (root.has(name)) { value = root[name].small_integer(); }
    }
    void operator()(const char* name, bool& value) const {
        if (root.has(name)) { value = root[name].boolean(); }
    }
};

/// Throws input_error naming a key that is neither known nor off.
inline void require_known(const nlohmann::json& config, std::span<const char* const> keys, const auto& refuse) {
    for (const auto& [key, value] : config.items()) {
        const auto is_key = [&name = key](const char* known) { return known == name; };
        const bool known = std::ranges::any_of(keys, is_key) || std::ranges::any_of(drawing_keys, is_key);
        if (key.starts_with('_') || known || value == false) { continue; }
        refuse(key, "does not know this key, which may change the noise");
    }
}

[[nodiscard]] inline train::rectified_flow read_flow(const io::json_field& root, const nlohmann::json& config,
                                                     const auto& refuse) {
    constexpr std::array keys{"num_train_timesteps", "shift", "base_shift", "max_shift", "base_image_seq_len",
                              "max_image_seq_len"};
    require_known(config, keys, refuse);
    train::rectified_flow flow;
    const scheduler_keys take{root};
    take("num_train_timesteps", flow.train_steps);
    take("shift", flow.shift);
    take("use_dynamic_shifting", flow.by_size);
    take("base_shift", flow.base_shift);
    take("max_shift", flow.max_shift);
    take("base_image_seq_len", flow.base_image_seq_len);
    take("max_image_seq_len", flow.max_image_seq_len);
    if (flow.by_size && root.has("time_shift_type") && root["time_shift_type"].text() != "exponential") {
        refuse("time_shift_type", "shifts exponentially alone");
    }
    return flow;
}
[[nodiscard]] inline train::edm_noise read_edm(const io::json_field& root, const nlohmann::json& config,
                                               const auto& refuse) {
    constexpr std::array keys{"num_train_timesteps", "sigma_min", "sigma_max",      "sigma_data",
                              "sigma_schedule",      "rho",       "prediction_type"};
    require_known(config, keys, refuse);
    train::edm_noise edm;
    const scheduler_keys take{root};
    take("num_train_timesteps", edm.train_steps);
    take("sigma_min", edm.sigma_min);
    take("sigma_max", edm.sigma_max);
    take("sigma_data", edm.sigma_data);
    take("rho", edm.rho);
    if (root.has("prediction_type")) {
        edm.velocity = root["prediction_type"].one_of<bool>({{"epsilon", false}, {"v_prediction", true}});
    }
    return edm;
}

/// A key and its value as messages have them.
[[nodiscard]] inline std::string shown_key(const std::string& key, const nlohmann::json& value, const char* between) {
    return io::printable(key) + between +
           io::printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// Keys of solvers, and what pulse's does.
[[nodiscard]] inline nlohmann::json usual_solver() {
    return {{"solver_order", 2},
            {"algorithm_type", "dpmsolver++"},
            {"solver_type", "midpoint"},
            {"lower_order_final", true},
            {"euler_at_final", false},
            {"final_sigmas_type", "zero"},
            {"lambda_min_clipped", nullptr}};
}

[[nodiscard]] inline nlohmann::json scheduler_json(std::string_view text, std::string_view source) {
    // Python writes this number, which is no JSON: no bound.
    std::string plain{text};
    constexpr std::string_view key = "\"lambda_min_clipped\":";
    constexpr std::string_view unbounded = "-Infinity";
    if (const std::size_t at = plain.find(key); at != std::string::npos) {
        const std::size_t value = std::min(plain.find_first_not_of(" \t\r\n", at + key.size()), plain.size());
        if (plain.compare(value, unbounded.size(), unbounded) == 0) { plain.replace(value, unbounded.size(), "null"); }
    }
    nlohmann::json config = io::parse_json(plain, source);
    // null stands for what is not there.
    for (auto entry = config.begin(); config.is_object() && entry != config.end();) {
        entry = entry->is_null() ? config.erase(entry) : std::next(entry);
    }
    return config;
}

} // namespace detail

PULSE_INLINE train::scheduler_settings parse_scheduler(std::string_view text, std::string_view source) {
    const nlohmann::json json = detail::scheduler_json(text, source);
    const io::json_field root{json, {source, "the scheduler", "a scheduler's config"}};
    const auto refuse = [&](const std::string& key, const char* why) {
        throw input_error(std::string{source} + ": " + detail::shown_key(key, json[key], " is ") + "; pulse " + why);
    };
    const auto checked = [&](const train::scheduler_settings& read) {
        try {
            static_cast<void>(train::process_of(read));
        } catch (const input_error& why) { throw input_error(std::string{source} + ": " + why.what()); }
        return read;
    };
    const std::string asked = root["_class_name"].text();
    if (asked == "FlowMatchEulerDiscreteScheduler" || asked == "FlowMatchHeunDiscreteScheduler") {
        return checked({.flow = detail::read_flow(root, json, refuse)});
    }
    if (asked == "EDMEulerScheduler" || asked == "EDMDPMSolverMultistepScheduler") {
        return checked({.edm = detail::read_edm(root, json, refuse)});
    }
    const detail::scheduler_class& kind = detail::scheduler_class_of(root["_class_name"]);
    detail::require_known(json, detail::training_keys, refuse);
    if (root.has("use_flow_sigmas") && root["use_flow_sigmas"].boolean()) {
        refuse("use_flow_sigmas", "does not train by flow matching");
    }
    if (kind.name == "EulerDiscrete" && root.has("timestep_type") && root["timestep_type"].text() != "discrete") {
        refuse("timestep_type", "trains with \"discrete\" alone");
    }

    train::scheduler_settings read;
    read.spacing = kind.spacing;
    read.set_alpha_to_one = kind.set_alpha_to_one;
    read.clip_sample = kind.clips;
    if (kind.latent) {
        read.beta_start = 0.00085;
        read.beta_end = 0.012;
        if (kind.spacing == detail::leading) { read.betas = train::beta_shape::scaled_linear; }
    }
    const auto take = [&](const char* name, auto& value, const auto& get) {
        if (root.has(name)) { value = get(root[name]); }
    };
    const detail::scheduler_keys take_plain{root};
    take_plain("num_train_timesteps", read.train_steps);
    take("beta_schedule", read.betas, [](const io::json_field& field) {
        return field.one_of<train::beta_shape>({{"linear", train::beta_shape::linear},
                                                {"scaled_linear", train::beta_shape::scaled_linear},
                                                {"squaredcos_cap_v2", train::beta_shape::squared_cosine},
                                                {"sigmoid", train::beta_shape::sigmoid}});
    });
    take_plain("beta_start", read.beta_start);
    take_plain("beta_end", read.beta_end);
    if (root.has("trained_betas")) {
        for (const io::json_field& beta : root["trained_betas"].list()) { read.trained_betas.push_back(beta.number()); }
    }
    take_plain("rescale_betas_zero_snr", read.zero_terminal_snr);
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
    take_plain("steps_offset", read.steps_offset);
    // Of other classes these keys are left over from another scheduler, and not read.
    if (kind.reads_alpha) { take_plain("set_alpha_to_one", read.set_alpha_to_one); }
    if (kind.clips) {
        take_plain("clip_sample", read.clip_sample);
        take_plain("clip_sample_range", read.clip_sample_range);
    }
    return checked(read);
}

PULSE_INLINE std::string class_of(const train::scheduler_settings& settings) {
    return settings.flow ? "FlowMatchEulerDiscreteScheduler" : settings.edm ? "EDMEulerScheduler" : "DDIMScheduler";
}

PULSE_INLINE std::string print_scheduler(const train::scheduler_settings& settings) {
    constexpr std::array betas{"linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid"};
    constexpr std::array predictions{"epsilon", "v_prediction", "sample"};
    constexpr std::array spacings{"leading", "trailing", "linspace"};
    nlohmann::ordered_json out;
    out["_class_name"] = class_of(settings);
    if (settings.flow) {
        const train::rectified_flow& flow = *settings.flow;
        out["num_train_timesteps"] = flow.train_steps;
        out["shift"] = flow.shift;
        out["use_dynamic_shifting"] = flow.by_size;
        out["base_shift"] = flow.base_shift;
        out["max_shift"] = flow.max_shift;
        out["base_image_seq_len"] = flow.base_image_seq_len;
        out["max_image_seq_len"] = flow.max_image_seq_len;
        return out.dump(2) + "\n";
    }
    if (settings.edm) {
        const train::edm_noise& edm = *settings.edm;
        out["num_train_timesteps"] = edm.train_steps;
        out["sigma_min"] = edm.sigma_min;
        out["sigma_max"] = edm.sigma_max;
        out["sigma_data"] = edm.sigma_data;
        out["rho"] = edm.rho;
        out["prediction_type"] = edm.velocity ? "v_prediction" : "epsilon";
        return out.dump(2) + "\n";
    }
    out["num_train_timesteps"] = settings.train_steps;
    out["beta_start"] = settings.beta_start;
    out["beta_end"] = settings.beta_end;
    out["beta_schedule"] = betas[static_cast<std::size_t>(settings.betas)];
    out["trained_betas"] = nullptr;
    if (!settings.trained_betas.empty()) { out["trained_betas"] = settings.trained_betas; }
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

PULSE_INLINE scheduler_drawing drawing_of(std::string_view text, std::string_view source) {
    const nlohmann::json json = detail::scheduler_json(text, source);
    const io::json_field root{json, {source, "the scheduler", "a scheduler's config"}};
    scheduler_drawing found{.class_name = root["_class_name"].text()};
    const nlohmann::json usual = detail::usual_solver();
    const bool solver = found.class_name == "DPMSolverMultistepScheduler";
    const bool flow = found.class_name.starts_with("FlowMatch");
    for (const auto& [key, value] : json.items()) {
        // What follows from others' files, such as the solver's keys in one of DDIM, is not read by the class.
        const bool off = value.is_null() || value == false;
        const bool other_way = key == "thresholding" || key == "stochastic_sampling" || key == "shift_terminal" ||
                               (key == "sigma_schedule" && value != "karras") ||
                               (key.starts_with("use_") && !(flow && key == "use_dynamic_shifting"));
        const bool differs = usual.contains(key) ? solver && usual[key] != value : !off && other_way;
        if (differs) { found.others.push_back(detail::shown_key(key, value, " ")); }
    }
    return found;
}

PULSE_INLINE scheduler_drawing read_drawing(const std::filesystem::path& folder) {
    const std::filesystem::path file = folder / "scheduler_config.json";
    return drawing_of(io::read_file(file), "'" + file.string() + "'");
}

} // namespace pulse::diffusers
