#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <span>
#include <vector>

#include <io/scratch.hpp>

#include <pulse/cuda/backend.cuh>
#include <pulse/cuda/device_images.cuh>
#include <pulse/cuda/diffusion_task.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/plan/kept_by.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/threads/ranks.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/saving.hpp>
#include <pulse/train/trainer.hpp>

#include <backend_pipeline.hpp>

namespace backend_pipeline {

[[nodiscard]] inline bool same(const train::rank_state& a, const train::rank_state& b) {
    return a.weights == b.weights && a.first_moment == b.first_moment && a.second_moment == b.second_moment &&
           a.average == b.average;
}

/// Whether the first layer's weight [8][4][3][3] is stored on the device as `weights` with channels last.
template <class Parameters>
[[nodiscard]] bool is_channels_last(Parameters& parameters, const std::vector<float>& weights) {
    const auto& first = parameters.of(0);
    std::vector<math::scalar> there(8 * 4 * 9);
    math::space::download(static_cast<const math::scalar*>(parameters.values_of(0).data()), std::span{there});
    bool same = true;
    for (std::size_t o = 0; o != 8; ++o) {
        for (std::size_t c = 0; c != 4; ++c) {
            for (std::size_t tap = 0; tap != 9; ++tap) {
                same =
                    same && cuda::to_float(there[(o * 9 + tap) * 4 + c]) ==
                                cuda::to_float(static_cast<math::scalar>(weights[first.first + (o * 4 + c) * 9 + tap]));
            }
        }
    }
    return same;
}

/// A run of one rank, on a device or on the host, with the same images and noise.
class checkpointed_run {
public:
    explicit checkpointed_run(const optimizer_form& form = {}) : form_{form}, images_{draw_images()} {
        std::mt19937 random{17};
        made_.plan = draw_plan<small_unet>(1, random);
        made_.costs = blank_costs(graph_of<small_unet>().view(), batch, sizeof(math::scalar));
        made_.kept = kept_by<small_unet, math>(false, form);
    }

    /// Calls act(trainer, step); step() makes one step.
    template <class Act>
    void on_device(const Act& act) const {
        cuda::run_ranks({0}, {}, [&](cuda::thread_transport& transport) {
            trainer<small_unet, math> rank{transport, made_, options};
            const cuda::device_images there{images_};
            cuda::diffusion_task<cuda::bf16> task{there, noise_, data(), transport.stream()};
            act(rank, [&] { return rank.step(task); });
        });
    }
    template <class Act>
    void on_host(const Act& act) const {
        using host = reference::backend<float>;
        planned made = made_;
        made.costs = blank_costs(graph_of<small_unet>().view(), batch, sizeof(float));
        made.kept = kept_by<small_unet, host>(false, {.moments = form_.moments});
        threads::run_ranks(1, {}, [&](threads::transport& transport) {
            trainer<small_unet, host> rank{transport, made, options};
            train::diffusion_task task{images_, noise_, data()};
            act(rank, [&] { return rank.step(task); });
        });
    }

private:
    static constexpr int size = small_unet::config.sample_size;
    inline static const trainer_options options{
        .seed = 5, .learning_rate = {.peak = 1e-2}, .adamw = {.weight_decay = 0.01}, .clip_norm = 1.0};

    [[nodiscard]] static train::image_dataset draw_images() {
        std::mt19937 random{3};
        std::vector<std::uint8_t> pixels(std::size_t{20} * size * size * 4);
        for (std::uint8_t& p : pixels) { p = static_cast<std::uint8_t>(random()); }
        return {size, size, 4, std::move(pixels), {.seed = 7}};
    }
    [[nodiscard]] train::diffusion_options data() const {
        return {.seed = 9, .microbatch_size = batch, .microbatches = made_.plan.microbatches};
    }

    optimizer_form form_;
    planned made_{};
    train::image_dataset images_;
    train::noise_schedule noise_ = train::noise_schedule::linear();
};

TEST_CASE("a device gives the state of training in the checkpoint's order, and has weights in its own") {
    checkpointed_run{}.on_device([](auto& rank, auto) {
        auto& parameters = rank.runner().parameters();
        std::vector<float> weights(parameters.values().size());
        for (std::size_t i = 0; i != weights.size(); ++i) { weights[i] = static_cast<float>(i % 251); }
        rank.start(weights);
        const train::rank_state state = rank.read_state();
        CHECK(state.weights == weights);
        CHECK(state.average == weights);
        CHECK(is_channels_last(parameters, weights));
    });
}

TEST_CASE("a run on a device goes on from its checkpoint bit for bit, whatever keeps its weights and moments") {
    for (const optimizer_form& form : {optimizer_form{},
                                       {moment_form::dynamic8, weight_form::kahan},
                                       {moment_form::dynamic8, weight_form::stochastic},
                                       {moment_form::factored, weight_form::stochastic}}) {
        CAPTURE(static_cast<int>(form.weights));
        const checkpointed_run run{form};
        const scratch folder{};
        train::rank_state saved;
        train::rank_state wanted;
        run.on_device([&](auto& rank, auto step) {
            for (int s = 0; s != 2; ++s) { step(); }
            saved = rank.read_state();
            save_trainer(rank, folder.path);
            for (int s = 0; s != 2; ++s) { step(); }
            wanted = rank.read_state();
        });
        CHECK(!same(saved, wanted));
        run.on_device([&](auto& rank, auto step) {
            resume_trainer(rank, folder.path);
            CHECK(same(rank.read_state(), saved));
            for (int s = 0; s != 2; ++s) { step(); }
            CHECK(same(rank.read_state(), wanted));
        });
    }
}

TEST_CASE("the host and a device read each other's checkpoints bit for bit") {
    for (const moment_form moments : {moment_form::float32, moment_form::factored}) {
        const checkpointed_run run{{.moments = moments}};
        const scratch from_device{};
        const scratch from_host{};
        train::rank_state saved;
        run.on_device([&](auto& rank, auto step) {
            step();
            saved = rank.read_state();
            save_trainer(rank, from_device.path);
        });
        run.on_host([&](auto& rank, auto step) {
            resume_trainer(rank, from_device.path);
            CHECK(same(rank.read_state(), saved));
            step();
            saved = rank.read_state();
            save_trainer(rank, from_host.path);
        });
        run.on_device([&](auto& rank, auto) {
            resume_trainer(rank, from_host.path);
            CHECK(same(rank.read_state(), saved));
            CHECK(is_channels_last(rank.runner().parameters(), saved.weights));
        });
    }
}

TEST_CASE("a step on a device leaves each tensor the moments that the host leaves it") {
    for (const moment_form moments : {moment_form::float32, moment_form::factored}) {
        const bool factored = moments == moment_form::factored;
        const auto kept = [&](const train::rank_state& s) { return factored ? s.second_moment : s.first_moment; };
        const checkpointed_run run{{.moments = moments}};
        std::vector<float> wanted;
        run.on_host([&](auto& rank, auto step) {
            step();
            wanted = kept(rank.read_state());
        });
        run.on_device([&](auto& rank, auto step) {
            step();
            const std::vector<float> found = kept(rank.read_state());
            REQUIRE(found.size() == wanted.size());
            std::size_t at = 0;
            for (const auto& block : rank.runner().parameters().blocks()) {
                for (const parameter& p : parameters_of<small_unet>(block.layer)) {
                    double off = 0;
                    double all = 0;
                    const auto size = factored ? factored_elements(p.elements(), p.matrix_rows()) : p.elements();
                    for (const std::size_t end = at + static_cast<std::size_t>(size); at != end; ++at) {
                        const double want = wanted[at];
                        off += (found[at] - want) * (found[at] - want);
                        all += want * want;
                    }
                    INFO(p.name.view());
                    // Norms of few pixels in 8 bits; squares are off by twice as much.
                    CHECK(std::sqrt(off) <= (factored ? 0.6 : 0.3) * std::sqrt(all) + 1e-9);
                }
            }
        });
    }
}

} // namespace backend_pipeline
