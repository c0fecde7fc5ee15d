#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/optimizer_rule.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/transport.hpp>
#include <pulse/runtime/weight_exchange.hpp>
#include <pulse/train/adamw.hpp>
#include <pulse/train/clip.hpp>
#include <pulse/train/ema.hpp>
#include <pulse/train/not_finite.hpp>

namespace pulse::train {

/// What is agreed between ranks at the end of a step.
struct step_outcome {
    double gradient_norm{};
    double loss{};
    /// A rank asked to stop.
    bool stop{};
};

/// Where an optimizer's rank stands among the replicas of its stages, and whether they share their state.
struct optimizer_replicas {
    replica_place place{};
    /// Moments, average and master weights are kept by one replica alone: share_of every layer (ZeRO, stage 1;
    /// Rajbhandari et al. 2020). The executor must be told the same (executor_options).
    bool sharded{};
};

/// AdamW with global-norm clipping and a moving average, for the parameters that one rank owns.
///
/// One sum over ranks carries every layer's squared gradient, the loss of every microbatch and the wish to stop. Each
/// value comes from one rank alone and is added in the model's order, so the step is the same bits however the model is
/// cut. Of D replicas each sums the squares of its share_of every layer, and has microbatches of its own: with D given,
/// the bits depend neither on the cut nor on whether state is sharded. `Rule` does the update of the weights, e.g.
/// plain_adamw or host::fused_adamw.
template <optimizer_rule Rule = plain_adamw>
class basic_rank_optimizer {
public:
    /// `layers` and `microbatches`: of the model and of a replica's step; `parameters`: elements that this rank owns.
    /// `clip_norm` 0 does not clip; `average_decay` is the limit of the average's warm-up. Throws input_error naming
    /// what is out of range.
    basic_rank_optimizer(std::size_t layers, std::size_t microbatches, std::size_t parameters,
                         const adamw_constants& constants, double clip_norm, double average_decay, Rule rule = {}) :
        layers_{layers},
        microbatches_{microbatches}, constants_{constants}, clip_norm_{clip_norm},
        average_decay_{average_decay}, rule_{std::move(rule)}, parameters_{parameters}, owned_{{0, parameters}} {
        take_memory();
        const auto require = [](bool good, const char* what) {
            if (!good) { throw input_error{std::string{"rank_optimizer: "} + what}; }
        };
        require(layers > 0, "a model has at least 1 layer");
        require(microbatches > 0, "a step has at least 1 microbatch");
        require(constants.beta1 >= 0 && constants.beta1 < 1, "beta1 must be at least 0 and below 1");
        require(constants.beta2 >= 0 && constants.beta2 < 1, "beta2 must be at least 0 and below 1");
        require(constants.epsilon > 0, "epsilon must be above 0");
        require(constants.weight_decay >= 0, "weight_decay must be at least 0");
        require(clip_norm >= 0, "clip_norm must be at least 0");
        require(average_decay >= 0 && average_decay <= 1, "average_decay must be 0 to 1");
    }
    /// For one of several replicas; `parameters` are those of the rank and must stay where they are.
    basic_rank_optimizer(std::size_t layers, std::size_t microbatches, rank_parameters<float>& parameters,
                         const optimizer_replicas& replicas, const adamw_constants& constants, double clip_norm,
                         double average_decay, Rule rule = {}) :
        basic_rank_optimizer{layers,        microbatches,   parameters.values().size(), constants, clip_norm,
                             average_decay, std::move(rule)} {
        replicas_ = replicas;
        if (replicas.sharded) {
            owned_ = shares_of(parameters.blocks(), replicas.place.replicas(), replicas.place.replica);
            exchange_ = weight_exchange{replicas.place, parameters.blocks(), parameters.values()};
        }
        take_memory();
    }

    /// Of which parameters the state is, in order: first_moment() and the others have the values of one range after the
    /// other.
    [[nodiscard]] std::span<const element_range> owned() const noexcept { return owned_; }
    [[nodiscard]] std::span<float> first_moment() noexcept { return first_moment_; }
    [[nodiscard]] std::span<float> second_moment() noexcept { return second_moment_; }
    [[nodiscard]] std::span<float> average() noexcept { return average_; }
    [[nodiscard]] std::int64_t bytes() const noexcept {
        return static_cast<std::int64_t>(3 * average_.size() * sizeof(float));
    }
    /// The average begins as the initial weights. Throws input_error unless they are this rank's in number.
    void start_average(std::span<const float> values) {
        require_size("initial weights", values.size(), parameters_);
        std::size_t at = 0;
        for (const element_range& r : owned_) {
            const auto mine = values.subspan(r.first, r.size);
            std::copy(mine.begin(), mine.end(), average_.begin() + static_cast<std::ptrdiff_t>(at));
            at += r.size;
        }
    }

    /// One step at `learning_rate`; `step` counts from 1, `losses` has one value for each microbatch of the replica.
    /// Gradients are zero afterwards. Every rank of the transport must call it. Throws not_finite_error naming what is
    /// not finite, and input_error, before anything is exchanged or changed, when sizes are not those that the
    /// optimizer was made for.
    template <transport T>
    step_outcome step(rank_parameters<float>& parameters, T& transport, std::int64_t step, double learning_rate,
                      std::span<const double> losses, bool stop) {
        require_fit(parameters, losses, step);
        std::fill(shared_.begin(), shared_.end(), 0.0);
        const std::span<const float> gradients{std::as_const(parameters).gradients()};
        for (const auto& b : parameters.blocks()) {
            const element_range mine = share_of({b.first, b.size}, replicas_.place.replicas(), replicas_.place.replica);
            shared_[position_of(b.layer) * replicas() + replica()] =
                sum_of_squares<float>(gradients.subspan(mine.first, mine.size));
        }
        std::copy(losses.begin(), losses.end(),
                  shared_.begin() + static_cast<std::ptrdiff_t>(square_count() + replica() * microbatches_));
        shared_.back() = stop ? 1.0 : 0.0;
        transport.sum(shared_);

        const std::span<const double> all{shared_};
        const std::span<const double> squares = all.first(square_count());
        const std::span<const double> shares = all.subspan(square_count(), replicas() * microbatches_);
        require_finite(shares, squares, replicas());
        const gradient_clip clip = clip_by_global_norm(squares, clip_norm_);
        optimizer_update now{constants_, step, clip.scale, ema_decay(step, average_decay_)};
        now.constants.learning_rate = learning_rate;
        std::size_t at = 0;
        for (const element_range& r : owned_) {
            const auto state = [&](std::vector<float>& values) { return std::span{values}.subspan(at, r.size); };
            rule_(now, parameters.values().subspan(r.first, r.size), gradients.subspan(r.first, r.size),
                  state(first_moment_), state(second_moment_), state(average_));
            at += r.size;
        }
        if (replicas_.sharded) { exchange_.run(transport); }
        std::fill(parameters.gradients().begin(), parameters.gradients().end(), 0.0F);

        step_outcome outcome{.gradient_norm = clip.norm, .stop = shared_.back() > 0};
        for (const double share : shares) { outcome.loss += share; }
        return outcome;
    }

private:
    /// The conditioning module stands before layer 0.
    [[nodiscard]] static std::size_t position_of(int layer) noexcept {
        return static_cast<std::size_t>(layer - conditioning_block);
    }

    [[nodiscard]] std::size_t replicas() const noexcept { return static_cast<std::size_t>(replicas_.place.replicas()); }
    [[nodiscard]] std::size_t replica() const noexcept { return static_cast<std::size_t>(replicas_.place.replica); }
    /// Squares of every replica's share of the conditioning module, then of layer 0, and so on.
    [[nodiscard]] std::size_t square_count() const noexcept { return (layers_ + 1) * replicas(); }
    void take_memory() {
        std::size_t mine = 0;
        for (const element_range& r : owned_) { mine += r.size; }
        shared_.assign(square_count() + replicas() * microbatches_ + 1, 0.0);
        for (std::vector<float>* state : {&first_moment_, &second_moment_, &average_}) {
            *state = std::vector<float>(mine);
        }
    }

    static void require_size(const char* what, std::size_t found, std::size_t wanted) {
        if (found != wanted) {
            throw input_error{"rank_optimizer: " + std::to_string(found) + " " + what + ", it was made for " +
                              std::to_string(wanted)};
        }
    }
    void require_fit(const rank_parameters<float>& parameters, std::span<const double> losses,
                     std::int64_t step) const {
        require_size("losses", losses.size(), microbatches_);
        require_size("parameters", parameters.values().size(), parameters_);
        for (const auto& b : parameters.blocks()) {
            if (b.layer < conditioning_block || position_of(b.layer) > layers_) {
                throw input_error{"rank_optimizer: the parameters are of layer " + std::to_string(b.layer) +
                                  ", it was made for " + std::to_string(layers_) + " layers"};
            }
        }
        if (step < 1) { throw input_error{"rank_optimizer: step is " + std::to_string(step) + ", it counts from 1"}; }
    }
    std::size_t layers_;
    std::size_t microbatches_;
    adamw_constants constants_;
    double clip_norm_;
    double average_decay_;
    Rule rule_;
    std::size_t parameters_;
    optimizer_replicas replicas_{};
    std::vector<element_range> owned_;
    weight_exchange exchange_{};
    std::vector<double> shared_{};
    std::vector<float> first_moment_{};
    std::vector<float> second_moment_{};
    std::vector<float> average_{};
};

/// The one that runs everywhere.
using rank_optimizer = basic_rank_optimizer<>;

} // namespace pulse::train
