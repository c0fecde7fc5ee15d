#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

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

/// A class of diffusers with betas, and its defaults for absent keys.
struct scheduler_class {
    std::string_view name{}; ///< without "Scheduler"
    train::timestep_spacing spacing{train::timestep_spacing::linspace};
    bool latent{};      ///< its default betas are those of latent diffusion
    bool clips{};       ///< it has clip_sample, by default true
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

/// The class of that name; throws input_error for one that adds noise in another way.
[[nodiscard]] inline const scheduler_class& scheduler_class_of(const io::json_field& name) {
    const std::string& text = name.text();
    const auto* const found = std::ranges::find_if(scheduler_classes, [&](const scheduler_class& one) {
        return text.starts_with(one.name) && std::string_view{text}.substr(one.name.size()) == "Scheduler";
    });
    if (found != scheduler_classes.end()) { return *found; }
    name.fail("is '" + io::printable(text) +
              "', which is not a diffusers scheduler that adds noise by betas, such as DDIMScheduler, by flow matching "
              "or as EDM does");
}

/// Keys that only decide how pictures are drawn, in any class of any version of diffusers.
inline constexpr std::array drawing_keys{
    // of solvers
    "algorithm_type", "corrector_order", "disable_corrector", "euler_at_final", "lower_order_final", "predict_x0",
    "predictor_order", "skip_prk_steps", "solver_order", "solver_p", "solver_type", "tau_func",
    // of times and of the noise at them
    "final_sigmas_type", "flow_shift", "interpolation_type", "lambda_min_clipped", "noise_sampler_seed",
    "original_inference_steps", "set_alpha_to_one", "set_alpha_to_zero", "shift_terminal", "sigma_max", "sigma_min",
    "steps_offset", "stochastic_sampling", "time_shift_type", "timestep_scaling", "timestep_spacing", "timestep_values",
    "use_beta_sigmas", "use_dynamic_shifting", "use_exponential_sigmas", "use_karras_sigmas", "use_lu_lambdas",
    "variance_type",
    // of what is drawn
    "clip_sample", "clip_sample_range", "dynamic_thresholding_ratio", "sample_max_value", "tensor_format",
    "thresholding"};

/// Words that a key may have, and what they mean.
template <class Value>
using words = std::initializer_list<std::pair<std::string_view, Value>>;

inline const words<train::beta_shape> beta_words{{"linear", train::beta_shape::linear},
                                                 {"scaled_linear", train::beta_shape::scaled_linear},
                                                 {"squaredcos_cap_v2", train::beta_shape::squared_cosine},
                                                 {"sigmoid", train::beta_shape::sigmoid}};
inline const words<train::prediction_type> prediction_words{{"epsilon", train::prediction_type::epsilon},
                                                            {"v_prediction", train::prediction_type::velocity},
                                                            {"sample", train::prediction_type::sample}};
inline const words<bool> velocity_words{{"epsilon", false}, {"v_prediction", true}};
inline const words<train::timestep_spacing> spacing_words{{"leading", train::timestep_spacing::leading},
                                                          {"trailing", train::timestep_spacing::trailing},
                                                          {"linspace", train::timestep_spacing::linspace}};

/// What is read and written, by take(key, value) or take(key, value, words): keys of flow matching, EDM and betas.
inline constexpr auto flow_keys = [](auto& flow, const auto& take) {
    take("num_train_timesteps", flow.train_steps);
    take("shift", flow.shift);
    take("use_dynamic_shifting", flow.by_size);
    take("base_shift", flow.base_shift);
    take("max_shift", flow.max_shift);
    take("base_image_seq_len", flow.base_image_seq_len);
    take("max_image_seq_len", flow.max_image_seq_len);
};
inline constexpr auto edm_keys = [](auto& edm, const auto& take) {
    take("num_train_timesteps", edm.train_steps);
    take("sigma_min", edm.sigma_min);
    take("sigma_max", edm.sigma_max);
    take("sigma_data", edm.sigma_data);
    take("rho", edm.rho);
    take("prediction_type", edm.velocity, velocity_words);
};
inline constexpr auto beta_keys = [](auto& of, const auto& take) {
    take("num_train_timesteps", of.train_steps);
    take("beta_start", of.beta_start);
    take("beta_end", of.beta_end);
    take("beta_schedule", of.betas, beta_words);
    take("trained_betas", of.trained_betas);
    take("clip_sample", of.clip_sample);
    take("clip_sample_range", of.clip_sample_range);
    take("set_alpha_to_one", of.set_alpha_to_one);
    take("steps_offset", of.steps_offset);
    take("prediction_type", of.prediction, prediction_words);
    take("timestep_spacing", of.spacing, spacing_words);
    take("rescale_betas_zero_snr", of.zero_terminal_snr);
};

/// Reads keys of a scheduler; an absent key leaves its value unchanged.
struct key_reader {
    const io::json_field& root;

    template <class Value>
    void operator()(const char* key, Value& value) const {
        if (!root.has(key)) { return; }
        if constexpr (std::is_same_v<Value, double>) {
            value = root[key].number();
        } else if constexpr (std::is_same_v<Value, int>) {
            value = root[key].small_integer();
        } else if constexpr (std::is_same_v<Value, bool>) {
            value = root[key].boolean();
        } else {
            for (const io::json_field& one : root[key].list()) { value.push_back(one.number()); }
        }
    }
    template <class Value>
    void operator()(const char* key, Value& value, words<Value> all) const {
        if (root.has(key)) { value = root[key].one_of(all); }
    }
};

/// The text of a scheduler with the keys of `of`.
[[nodiscard]] inline std::string print_keys(const std::string& name, const auto& of, const auto& keys) {
    nlohmann::ordered_json out{{"_class_name", name}};
    keys(of, [&]<class... Value>(const char* key, const auto& value, const words<Value>&... all) {
        out[key] = value;
        if constexpr (requires { value.empty(); }) {
            if (value.empty()) { out[key] = nullptr; }
        }
        ((out[key] = std::ranges::find(all, value, &std::pair<std::string_view, Value>::second)->first), ...);
    });
    return out.dump(2) + "\n";
}

/// Refuses a key that is neither in `keys` nor in `others`, does not only concern drawing, and is not off.
void require_known(const nlohmann::json& config, const auto& of, const auto& keys, std::set<std::string_view> others,
                   const auto& refuse) {
    others.insert(drawing_keys.begin(), drawing_keys.end());
    keys(of, [&](const char* key, const auto&...) { others.insert(key); });
    for (const auto& [key, value] : config.items()) {
        if (key.starts_with('_') || others.contains(key) || value == false) { continue; }
        refuse(key, "does not know this key, which may change the noise");
    }
}

/// A key and its value as messages show them.
[[nodiscard]] inline std::string shown_key(const std::string& key, const nlohmann::json& value, const char* between) {
    return io::printable(key) + between +
           io::printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// Keys of solvers, with what pulse's solver does.
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
    // Python writes -Infinity, which is not JSON, for no bound.
    std::string plain{text};
    constexpr std::string_view key = "\"lambda_min_clipped\":";
    constexpr std::string_view unbounded = "-Infinity";
    if (const std::size_t at = plain.find(key); at != std::string::npos) {
        const std::size_t value = std::min(plain.find_first_not_of(" \t\r\n", at + key.size()), plain.size());
        if (plain.compare(value, unbounded.size(), unbounded) == 0) { plain.replace(value, unbounded.size(), "null"); }
    }
    nlohmann::json config = io::parse_json(plain, source);
    // null means that the key is absent.
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
    const detail::key_reader take{root};
    if (asked == "FlowMatchEulerDiscreteScheduler" || asked == "FlowMatchHeunDiscreteScheduler") {
        train::rectified_flow flow;
        detail::require_known(json, flow, detail::flow_keys, {}, refuse);
        detail::flow_keys(flow, take);
        if (flow.by_size && root.has("time_shift_type") && root["time_shift_type"].text() != "exponential") {
            refuse("time_shift_type", "shifts only exponentially");
        }
        return checked({.flow = flow});
    }
    if (asked == "EDMEulerScheduler" || asked == "EDMDPMSolverMultistepScheduler") {
        train::edm_noise edm;
        detail::require_known(json, edm, detail::edm_keys, {"sigma_schedule"}, refuse);
        detail::edm_keys(edm, take);
        return checked({.edm = edm});
    }
    const detail::scheduler_class& kind = detail::scheduler_class_of(root["_class_name"]);
    train::scheduler_settings read;
    detail::require_known(json, read, detail::beta_keys, {"timestep_type", "use_flow_sigmas"}, refuse);
    if (root.has("use_flow_sigmas") && root["use_flow_sigmas"].boolean()) {
        refuse("use_flow_sigmas", "does not train by flow matching");
    }
    if (kind.name == "EulerDiscrete" && root.has("timestep_type") && root["timestep_type"].text() != "discrete") {
        refuse("timestep_type", "trains only with \"discrete\"");
    }

    read.spacing = kind.spacing;
    read.set_alpha_to_one = kind.set_alpha_to_one;
    read.clip_sample = kind.clips;
    if (kind.latent) {
        read.beta_start = 0.00085;
        read.beta_end = 0.012;
        if (kind.spacing == detail::leading) { read.betas = train::beta_shape::scaled_linear; }
    }
    detail::beta_keys(read, [&](std::string_view key, auto& value, const auto&... all) {
        // In other classes these keys are left over from another scheduler and are not read.
        const bool read_by_class = key == "set_alpha_to_one"        ? kind.reads_alpha
                                   : key.starts_with("clip_sample") ? kind.clips
                                                                    : true;
        if (read_by_class) { take(key.data(), value, all...); }
    });
    return checked(read);
}

PULSE_INLINE std::string class_of(const train::scheduler_settings& settings) {
    return settings.flow ? "FlowMatchEulerDiscreteScheduler" : settings.edm ? "EDMEulerScheduler" : "DDIMScheduler";
}

PULSE_INLINE std::string print_scheduler(const train::scheduler_settings& settings) {
    const std::string name = class_of(settings);
    if (settings.flow) { return detail::print_keys(name, *settings.flow, detail::flow_keys); }
    if (settings.edm) { return detail::print_keys(name, *settings.edm, detail::edm_keys); }
    return detail::print_keys(name, settings, detail::beta_keys);
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
        // The class does not read keys left over from other schedulers, such as the solver's in a file of DDIM.
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
