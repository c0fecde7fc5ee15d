#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <pulse/cuda/backend.cuh>
#include <pulse/cuda/device_images.cuh>
#include <pulse/cuda/device_updates.cuh>
#include <pulse/cuda/diffusion_task.cuh>
#include <pulse/cuda/engine_choices.hpp>
#include <pulse/cuda/engine_options.cuh>
#include <pulse/cuda/engine_store.cuh>
#include <pulse/cuda/stream.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/cuda/time_engines.cuh>
#include <pulse/nn/initialise.hpp>
#include <pulse/nn/unet.hpp>
#include <pulse/nn/uvit.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/train/trainer.hpp>

#include <support/random_plan.hpp>

#include <device_pipelined.hpp>

namespace backend_pipeline {

using namespace pulse;
using namespace pulse::test;

using math = cuda::backend<cuda::bf16>;

#if defined(__CUDACC__)
constexpr bool on_gpu = true;
#else
constexpr bool on_gpu = false; // emulated kernels are slow: the smallest model, few runs
#endif

struct small_unet : unet<unet_config{.name = "small_unet",
                                     .sample_size = on_gpu ? 16 : 2,
                                     .in_channels = 4,
                                     .out_channels = 4,
                                     .block_out_channels = {8, 16},
                                     .layers_per_block = 1,
                                     .attention = {false, on_gpu},
                                     .mid_block_attention = false,
                                     .attention_head_dim = 8,
                                     .norm_num_groups = 4}> {};

constexpr int batch = on_gpu ? 2 : 1;

/// A folded plan on `devices` devices; on one device it is a single stage.
template <class Model>
[[nodiscard]] plan draw_plan(int devices, std::mt19937& random) {
    plan p;
    p.pipeline_degree = devices;
    p.microbatches = on_gpu ? 6 : 2;
    p.microbatch_size = batch;
    p.split_backward = devices == 4;
    const cost_table costs = blank_costs(graph_of<Model>().view(), p.microbatch_size, sizeof(math::scalar));
    p.cut = draw_cut(costs, devices == 1 ? placement::sequential : placement::folded, devices, 1, random, 100000);
    REQUIRE(!p.cut.stages.empty());
    p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
    return p;
}

/// Pipelines of 2 and 4 ranks on one device must equal one rank with one stage, bit for bit; returns the latter's run.
/// The first step launches its work, the second captures it, the third replays it.
template <class Model>
[[nodiscard]] device_run check_pipelines(unsigned seed, const cuda::engine_options& engines = {}) {
    std::mt19937 random{seed};
    const auto make = [&](cuda::thread_transport& t) { return math{t.stream(), engines}; };
    const device_run alone = run_on_device<Model>(draw_plan<Model>(1, random), seed, {.steps = 3}, make);
    for (const bool equal : alone.steps_equal) { CHECK(equal); }
    CHECK(alone.planned_bytes == alone.measured_bytes);
    for (int devices = 2; devices <= (on_gpu ? 4 : 2); devices += 2) {
        const plan p = draw_plan<Model>(devices, random);
        const device_run run = run_on_device<Model>(p, seed, {.steps = 3}, make);
        INFO("P ", devices);
        CHECK(run.gradients == alone.gradients);
        CHECK(run.losses == alone.losses);
        CHECK(run.planned_bytes == run.measured_bytes);
        CHECK(run.planned_block == run.written_block);
        for (const bool equal : run.steps_equal) { CHECK(equal); }
        CHECK(run.sent.skip == 0);
        CHECK(run.most_skips_held > 0);
    }
    return alone;
}

/// Norm of the difference between all gradients and those of the same step in double, relative to the latter's norm.
template <class Model>
[[nodiscard]] double distance_from_double(const device_run& run, unsigned seed) {
    const auto want = run_unpipelined<Model, reference::backend<double>>(batch, on_gpu ? 6 : 2, seed);
    double difference = 0;
    double all = 0;
    for (const auto& [layer, gradients] : want.gradients) {
        const auto& found = run.gradients.at(layer);
        REQUIRE(found.size() == gradients.size());
        for (std::size_t i = 0; i != found.size(); ++i) {
            const double d = static_cast<double>(found[i]) - gradients[i];
            difference += d * d;
            all += gradients[i] * gradients[i];
        }
    }
    return std::sqrt(difference / all);
}

TEST_CASE("a UNet in a folded pipeline on one device, in bfloat16") {
    // Independent rounding errors: about the square root of the depth (50 operations) times the type's epsilon.
    CHECK(distance_from_double<small_unet>(check_pipelines<small_unet>(2), 2) < 50 * 0x1p-9);
}

TEST_CASE("engines timed in advance are the ones of a step, and every pipeline with them gives the bits of one rank") {
    const cuda::stream stream;
    const auto timed = std::make_shared<cuda::engine_choices>(1e6);
    cuda::time_engines<small_unet, cuda::bf16>(stream.get(), timed, batch, {}, 2.0);
    const auto count = [](const cuda::engine_choices& of) {
        std::size_t shapes = 0;
        for (const auto& [made_for, group] : of.all()) { shapes += group.size(); }
        return shapes;
    };
    CHECK(timed->all().size() == 2); // cuDNN's and cuBLASLt's
    CHECK(count(*timed) > 20);
    cuda::engine_options engines;
    engines.store = cuda::engine_store{};
    engines.choices = timed;
    static_cast<void>(check_pipelines<small_unet>(2, engines));

    // a step adds no choice, and uses each as often as counted
    engines.choices = std::make_shared<cuda::engine_choices>(0, timed->all());
    engines.candidates = cuda::timed_candidates;
    std::mt19937 random{2};
    const plan alone = draw_plan<small_unet>(1, random);
    static_cast<void>(run_on_device<small_unet>(alone, 2, {.steps = 1}, [&](cuda::thread_transport& t) {
        return math{t.stream(), engines};
    }));
    CHECK(count(*engines.choices) == count(*timed));
    for (const auto& [made_for, group] : timed->all()) {
        for (const auto& [what, one] : group) {
            CAPTURE(one.name);
            CHECK(engines.choices->all().at(made_for).at(what).uses ==
                  one.uses + one.uses / 2 * static_cast<double>(alone.microbatches));
        }
    }
}

struct trained {
    std::map<int, std::vector<float>> weights{}, averages{};
    std::vector<double> losses{};
};

/// A few steps of diffusion training with AdamW: images, noise, loss and update all stay on the device.
template <class Model>
[[nodiscard]] trained train_steps(const plan& planned, int steps) {
    constexpr int size = small_unet::config.sample_size;
    std::mt19937 random{3};
    std::vector<std::uint8_t> pixels(std::size_t{20} * size * size * 4);
    for (std::uint8_t& p : pixels) { p = static_cast<std::uint8_t>(random()); }
    const train::image_dataset images{size, size, 4, std::move(pixels), {.seed = 7}};
    const train::noise_schedule noise = train::noise_schedule::linear();
    const cost_table costs = blank_costs(graph_of<Model>().view(), planned.microbatch_size, sizeof(math::scalar));
    trained result;
    std::mutex mutex;
    cuda::run_ranks(std::vector<int>(static_cast<std::size_t>(planned.pipeline_degree), 0), {}, [&](auto& transport) {
        trainer<Model, math> rank{
            transport, pulse::planned{planned, costs},
            trainer_options{
                .seed = 5, .learning_rate = {.peak = 1e-2}, .adamw = {.weight_decay = 0.01}, .clip_norm = 1.0}};
        const cuda::device_images there{images};
        cuda::diffusion_task<cuda::bf16> task{there, noise,
                                              train::diffusion_options{.seed = 9,
                                                                       .microbatch_size = planned.microbatch_size,
                                                                       .microbatches = planned.microbatches},
                                              transport.stream()};
        std::vector<double> losses;
        for (int s = 0; s != steps; ++s) { losses.push_back(rank.step(task).loss); }
        const train::rank_state state = rank.read_state();
        const std::lock_guard lock{mutex};
        for (const auto& block : rank.runner().parameters().blocks()) {
            const auto part = [&](const std::vector<float>& from) {
                const auto first = from.begin() + static_cast<std::ptrdiff_t>(block.first);
                return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(block.size));
            };
            result.weights[block.layer] = part(state.weights);
            result.averages[block.layer] = part(state.average);
        }
        result.losses = losses;
    });
    return result;
}

TEST_CASE("training in a folded pipeline on one device leaves the weights of one rank, bit for bit") {
    // The first step launches its work, the second captures it; replays must see the current weights.
    constexpr int steps = on_gpu ? 8 : 3;
    std::mt19937 random{13};
    const trained alone = train_steps<small_unet>(draw_plan<small_unet>(1, random), steps);
    const trained folded = train_steps<small_unet>(draw_plan<small_unet>(2, random), steps);
    CHECK(folded.weights == alone.weights);
    CHECK(folded.averages == alone.averages);
    CHECK(folded.losses == alone.losses);
    REQUIRE(alone.losses.size() == static_cast<std::size_t>(steps));
    for (const double loss : alone.losses) { CHECK((loss > 0 && loss < 10)); }
}

struct small_uvit : uvit<uvit_config{.name = "small_uvit",
                                     .img_size = on_gpu ? 16 : 4,
                                     .patch_size = 2,
                                     .in_chans = 4,
                                     .embed_dim = on_gpu ? 64 : 16,
                                     .depth = on_gpu ? 8 : 4,
                                     .num_heads = on_gpu ? 4 : 2}> {};

TEST_CASE("a U-ViT in a folded pipeline on one device, in bfloat16") {
    CHECK(distance_from_double<small_uvit>(check_pipelines<small_uvit>(3), 3) < 50 * 0x1p-9);
}

} // namespace backend_pipeline
