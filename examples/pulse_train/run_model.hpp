#pragma once

#include <atomic>
#include <charconv>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <pulse/io/idx.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/partition/validate.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/measure.hpp>
#include <pulse/runtime/layer_bench.hpp>
#include <pulse/train/checkpoint.hpp>
#include <pulse/tune/plan_pipeline.hpp>

#include "arguments.hpp"
#include "artifacts.hpp"
#include "drawing.hpp"
#include "run.hpp"
#include "training.hpp"

namespace pulse_train {

namespace detail {

inline pulse::train::image_dataset load_images(const arguments& a) {
    pulse::io::idx_images images = pulse::io::read_idx_images(pulse::io::find_idx(a.data, "train-images-idx3-ubyte"));
    return {images.rows, images.columns, 1, std::move(images.pixels), {.seed = a.seed}};
}

template <class Model>
void require_shape(const arguments& a, const pulse::train::image_dataset& images) {
    constexpr auto shape = Model::template layer_at<0>::input::dims;
    if (images.channels() != shape[0] || images.height() != shape[1] || images.width() != shape[2]) {
        const auto text = [](auto height, auto width, auto channels) {
            return std::to_string(height) + "x" + std::to_string(width) + "x" + std::to_string(channels);
        };
        throw pulse::input_error{"--data: images of " + text(images.height(), images.width(), images.channels()) +
                                 " do not fit " + a.model + ", which takes " + text(shape[1], shape[2], shape[0])};
    }
}

template <class Model>
pulse::cost_table measure(int batch, int threads) {
    math backend{threads};
    pulse::layer_bench<Model, math> bench{backend, batch};
    constexpr auto graph = pulse::graph_of<Model>();
    return pulse::measure_costs(graph.view(), batch, sizeof(float), pulse::label{"host"}, bench,
                                {.warm_up_sweeps = 1, .sweeps = 5});
}

/// Throws input_error naming where the plan is from unless it fits the model and cannot deadlock.
inline void require_runnable(const run_inputs& in) {
    try {
        pulse::check_partition(in.plan.cut, in.costs);
        const pulse::step_model model{in.plan, in.costs};
        const pulse::check_report checked = pulse::check(in.plan, model, pulse::lower(in.plan, model));
        if (!checked.ok()) { throw pulse::input_error{checked.violation}; }
    } catch (const pulse::input_error& e) {
        const std::string source = in.args.plan_file.empty() ? "plan" : in.args.plan_file;
        throw pulse::input_error{source + ": " + e.what()};
    }
}

/// The plan of the run: read and checked, or made from costs measured here.
template <class Model>
void prepare_plan(run_inputs& in) {
    const arguments& a = in.args;
    if (!a.plan_file.empty()) { in.plan = pulse::load_plan(a.plan_file); }
    const int batch = a.plan_file.empty() ? a.microbatch_size : in.plan.microbatch_size;
    std::puts("measuring the layers ...");
    std::fflush(stdout);
    in.costs = measure<Model>(batch, a.threads);
    if (a.plan_file.empty()) {
        in.plan = pulse::plan_pipeline(in.costs, {.kind = a.placement,
                                                  .devices = a.ranks,
                                                  .waves = a.waves,
                                                  .microbatches = a.microbatches,
                                                  .split_backward = a.split_backward,
                                                  .routing = a.routing,
                                                  .recompute = a.recompute,
                                                  .method = a.method,
                                                  .slack = a.slack});
    } else if (in.plan.model != in.costs.model) {
        throw pulse::input_error{a.plan_file + ": model: the plan is for " + in.plan.model.str() + ", not " +
                                 in.costs.model.str()};
    } else if (in.plan.data_degree != 1) {
        throw pulse::input_error{a.plan_file + ": data_degree: thread ranks run one pipeline replica"};
    }
    require_runnable(in);
    in.plan.predicted.peak_memory_bytes =
        pulse::peak_bytes(in.plan, in.costs, pulse::pipeline_options{}.parameter_copies);
}

/// The shortest text that is read as the same number again.
inline std::string exact(double value) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

/// What decides the course of training; how it is cut, placed and ordered does not.
inline std::map<std::string, std::string> config_of(const run_inputs& in) {
    const arguments& a = in.args;
    return {{"model", a.model},
            {"images", std::to_string(in.images->size())},
            {"prediction", a.prediction == pulse::train::prediction_type::epsilon ? "epsilon" : "v"},
            {"noise", a.cosine_noise ? "cosine" : "linear"},
            {"learning_rate", exact(a.learning_rate)},
            {"warmup", std::to_string(a.warmup)},
            {"clip", exact(a.clip_norm)},
            {"ema", exact(a.average_decay)},
            {"seed", std::to_string(a.seed)},
            {"microbatch_size", std::to_string(in.plan.microbatch_size)},
            {"microbatches", std::to_string(in.plan.microbatches)}};
}

/// Throws input_error when the run to be continued was another one.
inline void require_same_config(const run_inputs& in) {
    const auto before = pulse::train::load_checkpoint(in.args.resume, {}, pulse::train::checkpoint_match::some).config;
    for (const auto& [key, value] : in.config) {
        const auto found = before.find(key);
        if (found == before.end() || found->second != value) {
            const std::string had = found == before.end() ? "unset" : found->second;
            throw pulse::input_error{"--resume: '" + in.args.resume + "': its run had " + key + " " + had +
                                     ", this one has " + value};
        }
    }
}

} // namespace detail

template <class Model>
void run(const arguments& a, const std::atomic<bool>& stop) {
    const pulse::train::image_dataset images = detail::load_images(a);
    detail::require_shape<Model>(a, images);
    const pulse::train::noise_schedule noise =
        a.cosine_noise ? pulse::train::noise_schedule::cosine() : pulse::train::noise_schedule::linear();
    run_inputs in{.args = a, .images = &images, .noise = &noise, .stop = &stop};
    detail::prepare_plan<Model>(in);
    in.config = detail::config_of(in);
    if (!a.resume.empty()) { detail::require_same_config(in); }

    shared_state shared;
    train<Model>(in, shared, [&] { open_folder(in); });
    const run_summary summary = summarise(in, shared);
    write_artifacts(in, shared, summary);
    std::vector<float> drawn;
    if (a.sample > 0 && !stop) {
        std::printf("drawing %d images ...\n", a.sample);
        std::fflush(stdout);
        drawn = draw_samples<Model>(in, shared);
        if (!drawn.empty()) { write_samples(in, drawn); }
    }
    print_summary(in, shared, summary, !drawn.empty());
}

} // namespace pulse_train
