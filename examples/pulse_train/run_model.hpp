#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <pulse/io/idx.hpp>
#include <pulse/io/png.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/profile/measure.hpp>
#include <pulse/runtime/layer_bench.hpp>

#include "arguments.hpp"
#include "artifacts.hpp"
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
        throw pulse::input_error{"--data: images of " + std::to_string(images.height()) + "x" + std::to_string(images.width()) + "x" +
                                 std::to_string(images.channels()) + " do not fit " + a.model + ", which takes " + std::to_string(shape[1]) +
                                 "x" + std::to_string(shape[2]) + "x" + std::to_string(shape[0])};
    }
}

template <class Model>
pulse::cost_table measure(int batch, int threads) {
    math backend{threads};
    pulse::layer_bench<Model, math> bench{backend, batch};
    constexpr auto graph = pulse::graph_of<Model>();
    return pulse::measure_costs(graph.view(), batch, sizeof(float), pulse::label{"host"},
                                [&](int layer, pulse::layer_pass what) {
                                    bench(layer, what == pulse::layer_pass::forward          ? pulse::pass::forward
                                                 : what == pulse::layer_pass::backward_input ? pulse::pass::backward_input
                                                                                             : pulse::pass::backward_weight);
                                },
                                {.warm_up_sweeps = 1, .sweeps = 5});
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
        in.plan = pulse::plan_pipeline(in.costs, {.kind = a.placement, .devices = a.ranks, .waves = a.waves, .microbatches = a.microbatches,
                                                  .split_backward = a.split_backward, .routing = a.routing, .skips = a.skips,
                                                  .method = a.method, .slack = a.slack});
    } else if (in.plan.model != in.costs.model) {
        throw pulse::input_error{a.plan_file + ": model: the plan is for " + in.plan.model.str() + ", not " + in.costs.model.str()};
    } else if (in.plan.data_degree != 1) {
        throw pulse::input_error{a.plan_file + ": data_degree: thread ranks run one pipeline replica"};
    }
    const pulse::step_model model{in.plan, in.costs};
    const pulse::check_report checked = pulse::check(in.plan, model, pulse::lower(in.plan, model));
    if (!checked.ok()) { throw pulse::input_error{"plan: " + checked.violation}; }
    in.plan.predicted.peak_memory_bytes = pulse::peak_bytes(in.plan, in.costs, pulse::pipeline_options{}.parameter_copies);
}

} // namespace detail

template <class Model>
void run(const arguments& a, const std::atomic<bool>& stop) {
    const pulse::train::image_dataset images = detail::load_images(a);
    detail::require_shape<Model>(a, images);
    const pulse::train::noise_schedule noise =
        a.cosine_noise ? pulse::train::noise_schedule::cosine() : pulse::train::noise_schedule::linear();
    run_inputs in{.args = a, .images = &images, .noise = &noise, .checkpoint = std::filesystem::path{a.out} / "checkpoint.safetensors",
                  .stop = &stop};
    detail::prepare_plan<Model>(in);
    in.config = {{"model", a.model}, {"prediction", a.prediction == pulse::train::prediction_type::epsilon ? "epsilon" : "v"},
                 {"noise", a.cosine_noise ? "cosine" : "linear"}, {"learning_rate", std::to_string(a.learning_rate)},
                 {"warmup", std::to_string(a.warmup)}, {"clip", std::to_string(a.clip_norm)}, {"ema", std::to_string(a.average_decay)},
                 {"seed", std::to_string(a.seed)}, {"microbatch_size", std::to_string(in.plan.microbatch_size)},
                 {"microbatches", std::to_string(in.plan.microbatches)}};

    std::error_code failed;
    std::filesystem::create_directories(a.out, failed);
    if (failed) { throw pulse::input_error{"--out: " + a.out + ": " + failed.message()}; }
    pulse::save_plan(in.plan, std::filesystem::path{a.out} / "plan.json");

    shared_state shared;
    train<Model>(in, shared);
    if (a.sample > 0) {
        std::printf("drawing %d images ...\n", a.sample);
        std::fflush(stdout);
        const std::vector<float> drawn = draw_samples<Model>(in, shared);
        pulse::io::write_png(std::filesystem::path{a.out} / "samples.png",
                             pulse::io::image_grid(drawn, images.height(), images.width(), images.channels()));
    }
    const run_summary summary = summarise(in, shared);
    write_artifacts(in, shared, summary);
    print_summary(in, shared, summary);
}

} // namespace pulse_train
