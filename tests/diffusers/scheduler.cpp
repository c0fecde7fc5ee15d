#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/diffusers/scheduler.hpp>

#include "folders.hpp"

using namespace pulse;
using namespace pulse::diffusers;
using pulse::test::mentions;
using pulse::test::refusal_of;
using train::scheduler_settings;

TEST_CASE("what is written of a scheduler is read") {
    for (int draw = 0; draw != 27 * 8; ++draw) {
        scheduler_settings settings{.train_steps = 10 + draw, .beta_start = 0.00085, .beta_end = 0.012};
        settings.betas = static_cast<train::beta_shape>(draw % 4);
        settings.prediction = static_cast<train::prediction_type>(draw / 3 % 3);
        settings.spacing = static_cast<train::timestep_spacing>(draw / 9 % 3);
        // At zero SNR the last step cannot predict epsilon.
        settings.zero_terminal_snr = draw / 27 % 2 != 0 && settings.prediction != train::prediction_type::epsilon;
        settings.set_alpha_to_one = draw / 54 % 2 != 0;
        settings.clip_sample = draw / 108 % 2 != 0;
        settings.clip_sample_range = 1.5;
        settings.steps_offset = draw % 2;
        if (draw % 5 == 0) {
            for (int t = 0; t != settings.train_steps; ++t) { settings.trained_betas.push_back(0.001 * (t + 1)); }
        }
        CHECK(parse_scheduler(print_scheduler(settings), "f") == settings);
    }
}

TEST_CASE("flow and EDM are read as they are written, and as they are published") {
    for (const bool by_size : {false, true}) {
        const scheduler_settings flow{.flow = train::rectified_flow{.train_steps = 500,
                                                                    .shift = 3.25,
                                                                    .by_size = by_size,
                                                                    .base_shift = 0.25,
                                                                    .max_shift = 1.5,
                                                                    .base_image_seq_len = 16,
                                                                    .max_image_seq_len = 99}};
        CHECK(parse_scheduler(print_scheduler(flow), "f") == flow);
        const scheduler_settings edm{.edm = train::edm_noise{.train_steps = 300,
                                                             .sigma_min = 0.01,
                                                             .sigma_max = 50,
                                                             .sigma_data = 1,
                                                             .rho = 5,
                                                             .velocity = by_size}};
        CHECK(parse_scheduler(print_scheduler(edm), "f") == edm);
    }
    CHECK(parse_scheduler(R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "_diffusers_version": "0.29.0.dev0",
                              "num_train_timesteps": 1000, "shift": 3.0})",
                          "f") == scheduler_settings{.flow = train::rectified_flow{.shift = 3}}); // Stable Diffusion 3
    CHECK(parse_scheduler(R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "base_image_seq_len": 256,
                              "base_shift": 0.5, "invert_sigmas": false, "max_image_seq_len": 4096, "max_shift": 1.15,
                              "num_train_timesteps": 1000, "shift": 3.0, "shift_terminal": null,
                              "time_shift_type": "exponential", "use_beta_sigmas": false,
                              "use_dynamic_shifting": true})",
                          "f") == scheduler_settings{.flow = train::rectified_flow{.shift = 3, .by_size = true}});
    CHECK(parse_scheduler(R"({"_class_name": "EDMDPMSolverMultistepScheduler", "algorithm_type": "dpmsolver++",
                              "dynamic_thresholding_ratio": 0.995, "euler_at_final": false,
                              "final_sigmas_type": "zero", "lower_order_final": true, "num_train_timesteps": 1000,
                              "prediction_type": "epsilon", "rho": 7.0, "sample_max_value": 1.0, "sigma_data": 0.5,
                              "sigma_max": 80.0, "sigma_min": 0.002, "solver_order": 2, "solver_type": "midpoint",
                              "thresholding": false})",
                          "f") == scheduler_settings{.edm = train::edm_noise{}}); // Playground 2.5
}

TEST_CASE("published schedulers mean what diffusers makes of them") {
    const scheduler_settings sd15 = parse_scheduler(R"({
        "_class_name": "PNDMScheduler", "_diffusers_version": "0.6.0", "beta_end": 0.012,
        "beta_schedule": "scaled_linear", "beta_start": 0.00085, "num_train_timesteps": 1000,
        "set_alpha_to_one": false, "skip_prk_steps": true, "steps_offset": 1, "trained_betas": null,
        "clip_sample": false})",
                                                    "f");
    CHECK(sd15 == scheduler_settings{.betas = train::beta_shape::scaled_linear,
                                     .beta_start = 0.00085,
                                     .beta_end = 0.012,
                                     .steps_offset = 1,
                                     .set_alpha_to_one = false,
                                     .clip_sample = false});
    const scheduler_settings sdxl = parse_scheduler(R"({
        "_class_name": "EulerDiscreteScheduler", "beta_end": 0.012, "beta_schedule": "scaled_linear",
        "beta_start": 0.00085, "clip_sample": false, "interpolation_type": "linear", "num_train_timesteps": 1000,
        "prediction_type": "epsilon", "sample_max_value": 1.0, "set_alpha_to_one": false, "skip_prk_steps": true,
        "steps_offset": 1, "timestep_spacing": "leading", "trained_betas": null, "use_karras_sigmas": false})",
                                                    "f");
    CHECK(sdxl.set_alpha_to_one); // Euler's last step always ends at a clean image; the file's value is a leftover
    CHECK(sdxl.spacing == train::timestep_spacing::leading);
    const auto absent = [](const char* name) {
        return parse_scheduler("{\"_class_name\": \"" + std::string{name} + "\"}", "f");
    };
    CHECK(absent("DDIMScheduler") == scheduler_settings{});
    CHECK(absent("DDPMScheduler") == scheduler_settings{});
    CHECK(parse_scheduler(R"({"_class_name": "DDIMScheduler", "clip_sample": null, "steps_offset": null,
                              "timestep_type": "continuous", "tensor_format": "pt", "lambda_min_clipped":-Infinity})",
                          "f") == scheduler_settings{});
    CHECK(absent("PNDMScheduler") == scheduler_settings{.set_alpha_to_one = false, .clip_sample = false});
    CHECK(absent("EulerDiscreteScheduler") ==
          scheduler_settings{.spacing = train::timestep_spacing::linspace, .clip_sample = false});
    CHECK(absent("DPMSolverMultistepScheduler") ==
          scheduler_settings{.spacing = train::timestep_spacing::linspace, .clip_sample = false});
}

TEST_CASE("a scheduler that requests another way of sampling can train, and the difference is reported") {
    const auto asked = [](const char* name, const char* key, const nlohmann::json& value) {
        const std::string text = nlohmann::json{{"_class_name", name}, {key, value}}.dump();
        CHECK_NOTHROW(static_cast<void>(parse_scheduler(text, "f")));
        const scheduler_drawing found = drawing_of(text, "f");
        CHECK(found.class_name == name);
        return found.others.empty() ? std::string{} : found.others.front();
    };
    const char* const solver = "DPMSolverMultistepScheduler";
    CHECK(asked("DDIMScheduler", "thresholding", true) == "thresholding true");
    CHECK(asked("EulerDiscreteScheduler", "use_karras_sigmas", true) == "use_karras_sigmas true");
    CHECK(asked(solver, "solver_order", 3) == "solver_order 3");
    CHECK(asked(solver, "solver_order", 2).empty());
    CHECK(asked("UniPCMultistepScheduler", "solver_order", 3).empty()); // the whole class differs
    CHECK(asked(solver, "final_sigmas_type", "sigma_min") == "final_sigmas_type \"sigma_min\"");
    CHECK(asked(solver, "lambda_min_clipped", -5.1) == "lambda_min_clipped -5.1");
    CHECK(asked(solver, "lower_order_final", false) == "lower_order_final false");
    CHECK(asked(solver, "flow_shift", 1.0).empty());
    CHECK(asked("DDIMScheduler", "a_key_of_tomorrow", nullptr).empty());
    const char* const flow = "FlowMatchEulerDiscreteScheduler";
    CHECK(asked(flow, "use_dynamic_shifting", true).empty());
    CHECK(asked(flow, "shift_terminal", 0.1) == "shift_terminal 0.1");
    CHECK(asked(flow, "stochastic_sampling", true) == "stochastic_sampling true");
    CHECK(asked("EDMEulerScheduler", "sigma_schedule", "karras").empty());
    CHECK(asked("EDMEulerScheduler", "sigma_schedule", "exponential") == "sigma_schedule \"exponential\"");
}

TEST_CASE("a scheduler that pulse is not is refused by its key") {
    const std::string deep = "{\"_class_name\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}";
    CHECK(mentions(refusal_of([&] { static_cast<void>(parse_scheduler(deep, "f")); }), {"f: is nested deeper than"}));
    const auto why = [](const char* key, const nlohmann::json& value) {
        nlohmann::json file = nlohmann::json::parse(print_scheduler({}));
        file[key] = value;
        return refusal_of([&] { static_cast<void>(parse_scheduler(file.dump(), "f")); });
    };
    CHECK(why("prediction_type", "epsilon") == "no refusal");
    CHECK(why("use_lu_lambdas", false) == "no refusal");
    CHECK(
        mentions(why("_class_name", "KarrasVeScheduler"), {"f: _class_name is 'KarrasVeScheduler'", "DDIMScheduler"}));
    const auto why_not = [](const scheduler_settings& of, const char* key, const nlohmann::json& value) {
        nlohmann::json file = nlohmann::json::parse(print_scheduler(of));
        file[key] = value;
        return refusal_of([&] { static_cast<void>(parse_scheduler(file.dump(), "f")); });
    };
    const scheduler_settings flow{.flow = train::rectified_flow{}};
    const scheduler_settings edm{.edm = train::edm_noise{}};
    CHECK(why_not(flow, "use_karras_sigmas", true) == "no refusal");
    CHECK(why_not(flow, "time_shift_type", "linear") == "no refusal");
    CHECK(mentions(why_not({.flow = train::rectified_flow{.by_size = true}}, "time_shift_type", "linear"),
                   {"f: time_shift_type is \"linear\"", "exponentially"}));
    CHECK(mentions(why_not(flow, "invert_sigmas", true), {"f: invert_sigmas is true; pulse does not know this key"}));
    CHECK(mentions(why_not(flow, "shift", 0), {"f: rectified flow: shift must be above 0"}));
    CHECK(mentions(why_not(flow, "max_image_seq_len", 256), {"f: rectified flow: base_image_seq_len must be below"}));
    CHECK(mentions(why_not(flow, "beta_start", 0.1), {"f: beta_start is 0.1; pulse does not know this key"}));
    CHECK(mentions(why_not(edm, "sigma_data", 0), {"f: EDM: sigma_data must be above 0"}));
    CHECK(mentions(why_not(edm, "sigma_min", 90), {"f: EDM: sigma_min must be above 0 and below sigma_max"}));
    CHECK(mentions(why_not(edm, "prediction_type", "sample"), {"f: prediction_type is 'sample'", "v_prediction"}));
    CHECK(mentions(why_not(edm, "num_train_timesteps", 0), {"f: EDM: num_train_timesteps must be"}));
    CHECK(mentions(why("use_flow_sigmas", true), {"f: use_flow_sigmas is true", "flow matching"}));
    const char* const euler = R"({"_class_name": "EulerDiscreteScheduler", "timestep_type": "continuous"})";
    CHECK(mentions(refusal_of([&] { static_cast<void>(parse_scheduler(euler, "f")); }),
                   {"f: timestep_type is \"continuous\""}));
    CHECK(mentions(why("snr_shift_scale", 3.0), {"f: snr_shift_scale is 3.0; pulse does not know this key"}));
    CHECK(
        mentions(why("trained_betas", {0.1, 0.2}), {"f: scheduler settings: trained_betas must have", "1000, not 2"}));
    CHECK(mentions(why("trained_betas", {"0.1"}), {"f: trained_betas[0] must be a number"}));
    CHECK(mentions(why("trained_betas", 3), {"f: trained_betas must be an array"}));
    CHECK(mentions(why("beta_schedule", "laplace"), {"f: beta_schedule is 'laplace'", "scaled_linear"}));
    CHECK(mentions(why("prediction_type", "flow"), {"f: prediction_type is 'flow'", "v_prediction"}));
    CHECK(mentions(why("num_train_timesteps", 0), {"f: scheduler settings: num_train_timesteps must be", "not 0"}));
    CHECK(mentions(why("num_train_timesteps", 2000000000), {"f: ", "num_train_timesteps must be", "not 2000000000"}));
    CHECK(mentions(why("beta_start", 0.0), {"f: noise schedule: beta 0 must be above 0 and below 1"}));
    CHECK(mentions(why("clip_sample_range", 0.0), {"f: scheduler settings: clip_sample_range must be"}));
    CHECK(mentions(why("rescale_betas_zero_snr", true),
                   {"f: noise schedule: epsilon cannot be predicted with zero terminal SNR"}));
    CHECK(mentions(why("beta_end", "0.1"), {"f: beta_end must be a number"}));
    CHECK(mentions(why("steps_offset", 1000), {"f: scheduler settings: steps_offset must be", "not 1000"}));
    CHECK(mentions(why("steps_offset", -1), {"f: scheduler settings: steps_offset must be"}));
    CHECK(mentions(refusal_of([] { static_cast<void>(parse_scheduler("{\"_class_name\"", "f")); }),
                   {"f: not valid JSON"}));
}
