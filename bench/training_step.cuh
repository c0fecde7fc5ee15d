#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <pulse/cuda/device.cuh>
#include <pulse/cuda/engine_choices.hpp>
#include <pulse/cuda/engine_options.cuh>
#include <pulse/cuda/error.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/hardware/device.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/nn/initialise.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/tune/candidate_plan.hpp>

#include "block_layers.cuh"
#include "device_operations.cuh"
#include "device_training.cuh"
#include "statistics.hpp"
#include "training_step.hpp"

namespace pulse_bench {

/// The same batch every step, drawn as the peer draws it.
template <class Model>
class fixed_task {
public:
    using scalar = device_operations::scalar;

    fixed_task(int batch, cudaStream_t stream) :
        stream_{stream}, input_{uploaded(
                             drawn_tensor<scalar>("input", batch * Model::template layer_at<0>::input::elements))},
        target_{uploaded(drawn_tensor<scalar>("target", batch * last::output::elements))},
        text_{uploaded(drawn_tensor<scalar>("text", batch * Model::conditioning::text_elements))}, loss_(65) {
        std::vector<float> times;
        std::vector<float> sizes;
        for (int i = 0; i != batch; ++i) {
            times.push_back(static_cast<float>((321 + 37 * i) % 1000));
            sizes.insert(sizes.end(), {1024, 1024, 0, 0, 1024, 1024});
        }
        times_ = uploaded(times);
        sizes_ = uploaded(sizes);
    }

    [[nodiscard]] const float* timesteps(int) const { return times_.data(); }
    [[nodiscard]] const scalar* text(int) const { return text_.data(); }
    [[nodiscard]] const float* facts(int) const { return sizes_.data(); }
    void input(int, scalar* x) const { pulse::cuda::copy_async(x, input_.data(), input_.size(), stream_); }
    void loss(int, const scalar* y, scalar* dy) {
        if (first_.empty()) { // before anything is captured
            first_.resize(target_.size());
            pulse::cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
            pulse::cuda::download(y, first_.data(), first_.size());
        }
        mean_squared_error(stream_, static_cast<std::int64_t>(target_.size()), y, target_.data(), dy, loss_.data());
    }
    void optimize() {}
    [[nodiscard]] const double* loss() const { return loss_.data(); }
    [[nodiscard]] const pulse::cuda::device_memory<scalar>& target() const { return target_; }
    /// The prediction of the first step.
    [[nodiscard]] signature prediction() const {
        signature made;
        for (const scalar value : first_) { made.add(static_cast<double>(static_cast<float>(value))); }
        return made;
    }

private:
    using last = typename Model::template layer_at<Model::layer_count - 1>;

    template <class T>
    [[nodiscard]] static pulse::cuda::device_memory<T> uploaded(const std::vector<T>& values) {
        pulse::cuda::device_memory<T> there{values.size()};
        pulse::cuda::upload(values.data(), there.data(), values.size());
        return there;
    }

    cudaStream_t stream_;
    pulse::cuda::device_memory<scalar> input_, target_, text_;
    pulse::cuda::device_memory<float> times_{}, sizes_{};
    pulse::cuda::device_memory<double> loss_;
    std::vector<scalar> first_{};
};

/// The initial weights of all layers, drawn by all cores: there are billions.
template <class Model>
[[nodiscard]] std::vector<float> initial_weights(const device_parameters& parameters) {
    std::vector<float> values(parameters.values().size());
    std::atomic<std::size_t> next{0};
    const auto blocks = parameters.blocks();
    const auto draw = [&] {
        for (std::size_t i = next++; i < blocks.size(); i = next++) {
            const auto& block = blocks[i];
            pulse::nn::initialise<float>(pulse::parameters_of<Model>(block.layer), 1,
                                         std::span{values}.subspan(block.first, block.size));
        }
    };
    std::vector<std::jthread> others;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) { others.emplace_back(draw); }
    draw();
    others.clear();
    return values;
}

/// The signature of floats on the device.
[[nodiscard]] inline signature signature_of(std::span<const float> there) {
    std::vector<float> values(there.size());
    pulse::cuda::download(there.data(), values.data(), values.size());
    signature made;
    for (const float value : values) { made.add(static_cast<double>(value)); }
    return made;
}

[[nodiscard]] inline std::int64_t free_bytes() {
    std::size_t free = 0;
    std::size_t all = 0;
    pulse::cuda::check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
    return static_cast<std::int64_t>(free);
}

/// Measures a model's step by events around all of it, with the optimizer's one wait. The figures name a failure.
template <class Model>
[[nodiscard]] step_figures measure_step(const step_request& request) {
    using scalar = device_operations::scalar;
    static constexpr auto graph = pulse::graph_of<Model>();
    step_figures found;
    for (const pulse::layer_node& layer : graph.layers) { found.flops += 3 * request.batch * layer.forward_flops; }
    const std::int64_t free_before = free_bytes();
    const auto run = [&](pulse::cuda::thread_transport& transport) {
        const auto costs = pulse::analytic_costs(graph.view(), pulse::h200, request.batch, sizeof(scalar));
        const auto plan =
            pulse::plan_candidate(costs, {.kind = pulse::placement::sequential, .split_backward = false}).plan;
        pulse::cuda::engine_options engines;
        if (request.time_engines_s > 0) {
            engines.candidates = pulse::cuda::timed_candidates;
            engines.choices = std::make_shared<pulse::cuda::engine_choices>(request.time_engines_s);
        }
        device_operations math{transport.stream(), engines};
        pulse::executor<Model, device_operations> rank{math, transport, plan, costs};
        found.parameters = static_cast<std::int64_t>(rank.parameters().values().size());
        device_optimizer optimizer{Model::part_count, rank.parameters(), initial_weights<Model>(rank.parameters()),
                                   transport.stream()};
        fixed_task<Model> task{request.batch, transport.stream()};
        pulse::cuda::event begin{pulse::cuda::timing::on};
        pulse::cuda::event end{pulse::cuda::timing::on};
        std::vector<double> seconds;
        signature of_conditioning;
        for (int step = 1; step <= 3 + request.rounds; ++step) {
            begin.record(transport.stream());
            rank.step(task);
            if (step == 1) {
                pulse::cuda::check(cudaStreamSynchronize(transport.stream()), "cudaStreamSynchronize");
                if (engines.choices != nullptr) { found.engines = engines.choices->report(); }
                of_conditioning = signature_of(rank.parameters().gradients_of(pulse::conditioning_block));
            }
            const step_end done = optimizer.step(rank.parameters(), transport, step, task.loss());
            end.record(transport.stream());
            end.synchronize();
            if (step == 1) {
                found.loss = done.loss;
                found.gradient_norm = done.gradient_norm;
                // Two roundings of every number of a deep model to eight bits are further apart than those of a layer.
                found.agreed = {{done.loss, 0.03 * done.loss},
                                {done.gradient_norm, 0.05 * done.gradient_norm},
                                {static_cast<double>(found.parameters), 0.5}};
                append_signature(found.agreed, task.prediction(), 0.15);
                append_signature(found.agreed, of_conditioning, 0.15);
            }
            if (step > 3) { seconds.push_back(pulse::cuda::seconds_between(begin, end)); }
        }
        found.seconds = median(seconds);
        found.spread_percent = spread(seconds);
        found.attention = math.attention_report();
        // All memory of a step stays allocated to the end of the run.
        found.bytes = free_before - free_bytes();
    };
    try {
        pulse::cuda::run_ranks({pulse::cuda::current_device()}, {}, [&](pulse::cuda::thread_transport& transport) {
            try {
                run(transport);
            } catch (const std::exception& e) { found.failure = is_out_of_memory(e) ? "out of memory" : e.what(); }
        });
    } catch (const std::exception& e) { found.failure = e.what(); }
    return found;
}

} // namespace pulse_bench
