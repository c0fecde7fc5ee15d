#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/transport.hpp>
#include <pulse/train/adamw.hpp>
#include <pulse/train/clip.hpp>
#include <pulse/train/ema.hpp>

namespace pulse::train {

/// What is agreed between ranks at the end of a step.
struct step_outcome {
    double gradient_norm{};
    double loss{};
    /// A rank asked to stop.
    bool stop{};
};

/// AdamW with global-norm clipping and a moving average, for the parameters that one rank owns.
///
/// One sum over ranks carries every layer's squared gradient, the loss of every microbatch and the wish to stop. Each value
/// comes from one rank alone and is added in the model's order, so the step is the same bits however the model is cut.
class rank_optimizer {
public:
    /// `layers` and `microbatches`: of the model and of a step. `clip_norm` 0 does not clip; `average_decay` is the limit of
    /// the average's warm-up.
    rank_optimizer(std::size_t layers, std::size_t microbatches, std::size_t parameters, const adamw_constants& constants,
                   double clip_norm, double average_decay)
        : layers_{layers}, constants_{constants}, clip_norm_{clip_norm}, average_decay_{average_decay},
          shared_(layers + 1 + microbatches + 1), first_moment_(parameters), second_moment_(parameters), average_(parameters) {}

    [[nodiscard]] std::span<float> first_moment() noexcept { return first_moment_; }
    [[nodiscard]] std::span<float> second_moment() noexcept { return second_moment_; }
    [[nodiscard]] std::span<float> average() noexcept { return average_; }
    [[nodiscard]] std::int64_t bytes() const noexcept { return static_cast<std::int64_t>(3 * average_.size() * sizeof(float)); }
    /// The average begins as the initial weights.
    void start_average(std::span<const float> values) { average_.assign(values.begin(), values.end()); }

    /// One step at `learning_rate`; `step` counts from 1. Gradients are zero afterwards. Every rank of the transport must
    /// call it. Throws error naming the layer whose gradient is not finite.
    template <transport T>
    step_outcome step(rank_parameters<float>& parameters, T& transport, std::int64_t step, double learning_rate,
                      std::span<const double> losses, bool stop) {
        std::fill(shared_.begin(), shared_.end(), 0.0);
        const std::span<const float> gradients{parameters.gradients()};
        for (const auto& b : parameters.blocks()) {
            shared_[static_cast<std::size_t>(b.layer + 1)] = sum_of_squares<float>(gradients.subspan(b.first, b.size));
        }
        std::copy(losses.begin(), losses.end(), shared_.begin() + static_cast<std::ptrdiff_t>(layers_ + 1));
        shared_.back() = stop ? 1.0 : 0.0;
        transport.sum(shared_);

        const std::span<const double> all{shared_};
        const gradient_clip clip = clip_by_global_norm(all.first(layers_ + 1), clip_norm_);
        adamw_constants now = constants_;
        now.learning_rate = learning_rate;
        adamw_step<float>(factors_of<float>(now, step, clip.scale), parameters.values(), gradients, first_moment_, second_moment_);
        ema_update<float>(ema_decay(step, average_decay_), parameters.values(), average_);
        std::fill(parameters.gradients().begin(), parameters.gradients().end(), 0.0F);

        step_outcome outcome{.gradient_norm = clip.norm, .stop = shared_.back() > 0};
        for (const double share : all.subspan(layers_ + 1, shared_.size() - layers_ - 2)) { outcome.loss += share; }
        return outcome;
    }

private:
    std::size_t layers_;
    adamw_constants constants_;
    double clip_norm_;
    double average_decay_;
    std::vector<double> shared_;
    std::vector<float> first_moment_;
    std::vector<float> second_moment_;
    std::vector<float> average_;
};

} // namespace pulse::train
