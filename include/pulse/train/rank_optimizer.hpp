#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/optimizer_rule.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/weight_exchange.hpp>
#include <pulse/train/clip.hpp>
#include <pulse/train/ema.hpp>
#include <pulse/train/host_updates.hpp>
#include <pulse/train/loss_scale.hpp>
#include <pulse/train/not_finite.hpp>
#include <pulse/train/optimizer_options.hpp>
#include <pulse/train/optimizer_state.hpp>

namespace pulse::train {

/// What the ranks agree on at the end of a step.
struct step_outcome {
    double gradient_norm{}; ///< before clipping
    double loss{};
    bool stop{};          ///< a rank asked to stop
    bool skipped{};       ///< gradients overflowed: only the loss scale changed
    double loss_scale{1}; ///< of the next step
};

/// Weights, moments and average of one block of a rank's parameters, or of all blocks, tensor by tensor, each in the
/// checkpoint's order: what a checkpoint keeps. Where moments are factored there are no first moments, and the second
/// are the means of each tensor's rows and columns.
struct rank_state {
    std::vector<float> weights{};
    std::vector<float> first_moment{};
    std::vector<float> second_moment{};
    std::vector<float> average{};
};
inline constexpr std::array rank_state_parts{&rank_state::weights, &rank_state::first_moment,
                                             &rank_state::second_moment, &rank_state::average};

/// AdamW, or Adafactor where moments are factored, with global-norm clipping and a moving average, for the parameters
/// that one rank owns. `Updates` does its memory operations, on the host or on a device (see host_updates).
///
/// One sum over ranks carries every layer's squared gradient, the loss of every microbatch and the stop request. Each
/// value comes from one rank alone and is added in the model's order, so the step has the same bits however the model
/// is cut. Each of D replicas sums the squares of its share_of every layer and has its own microbatches: for a given D,
/// the bits depend neither on the cut nor on whether state is sharded.
///
/// Where gradients are released, update_layers() updates each stage before step(), which then only sums their squares.
///
/// On a device a step waits once, for the sums of squares and the losses; the update stays queued in the stream,
/// followed by the exchange of new weights where replicas share the state.
template <class Updates = host_updates<>>
class rank_optimizer {
public:
    using scalar = typename Updates::scalar;
    using space = typename Updates::space;
    static constexpr bool keeps_master = Updates::keeps_master;

    /// `layers`: of the model; `microbatches`: in a replica's step. `parameters`: rank_parameters of this rank, which
    /// must not move where state is sharded. Throws input_error naming what is out of range.
    template <class Parameters>
    rank_optimizer(std::size_t layers, std::size_t microbatches, Parameters& parameters,
                   const optimizer_options& options, Updates updates = {}) :
        layers_{layers},
        microbatches_{microbatches}, options_{require_good(layers, microbatches, options)},
        updates_{std::move(updates)}, scaler_{Updates::scales_loss ? loss_scaler{options.scaling} : loss_scaler{}},
        size_{parameters.values().size()}, state_{options.form, pieces_of(parameters, options)},
        shared_(square_count() + replicas() * microbatches + 1) {
        if (options.replicas.sharded) {
            exchange_ = weight_exchange{place(), std::span{parameters.blocks()}, parameters.values()};
        }
        std::vector<element_range> shares;
        for (const auto& b : parameters.blocks()) {
            // Not b.layer < ...: clang parses that as template arguments of the concept `layer`.
            if (conditioning_block > b.layer || position_of(b.layer) > layers_) {
                throw input_error{"rank_optimizer: parameters belong to layer " + std::to_string(b.layer) +
                                  ", but the model's layers are 0 to " + std::to_string(layers_ - 1)};
            }
            positions_.push_back(position_of(b.layer) * replicas() + replica());
            shares.push_back(share_of({b.first_gradient(), b.size}, place().replicas(), place().replica));
        }
        if (scaler_.on() && options.gradient_release) {
            throw input_error{
                "rank_optimizer: gradient_release cannot be used with loss scaling: a step whose gradients overflow "
                "must leave the weights unchanged"};
        }
        squares_.resize(shares.size());
        updates_.prepare(std::move(shares), microbatches_, options.form.is_factored());
    }

    /// Sets weights, their average and the copy that passes read from `values` on the host, in the order of the
    /// parameters and of the checkpoint. Throws input_error unless their number is this rank's. Done on return.
    template <class Parameters>
    void start(std::span<const float> values, Parameters& parameters) {
        require_size("initial weights", values.size(), size_);
        start_by_block(parameters, [&](const auto& b, std::span<float> to) {
            std::ranges::copy(values.subspan(b.first, b.size), to.begin());
        });
    }
    /// Sets them from fill(block, values), called for each block of the parameters in turn, so that the host holds one
    /// block at a time.
    template <class Parameters, class Fill>
    void start_by_block(Parameters& parameters, const Fill& fill) {
        std::vector<float> values;
        for (const auto& b : parameters.blocks()) {
            values.resize(b.size);
            fill(b, std::span{values});
            start_block(parameters, b, values);
        }
    }

    /// Which parameters the state covers, in order: first_moment() and the others hold the values of one piece after
    /// the other, in the space's memory and order (rank_parameters).
    [[nodiscard]] std::span<const update_piece> pieces() const noexcept { return state_.pieces(); }
    /// Where values are narrow, the master weights of pieces(), empty if none are kept; else all the parameters'
    /// values.
    template <class Parameters>
    [[nodiscard]] std::span<float> weights(Parameters& parameters) {
        if constexpr (keeps_master) {
            return state_.master();
        } else {
            return parameters.values();
        }
    }
    /// Empty where the state has moments as codes, or none.
    [[nodiscard]] std::span<float> first_moment() { return state_.first_moment(); }
    [[nodiscard]] std::span<float> second_moment() { return state_.second_moment(); }
    [[nodiscard]] std::span<float> average() { return state_.average(); }
    [[nodiscard]] const optimizer_form& form() const noexcept { return options_.form; }
    /// Its memory operations.
    [[nodiscard]] const Updates& memory() const noexcept { return updates_; }
    [[nodiscard]] loss_scaler& scaler() noexcept { return scaler_; }
    /// Gradient norm of the last step, if options clip the next one by it; else, and before the first step, 0.
    [[nodiscard]] double last_norm() const noexcept { return options_.clip_by_last_norm ? last_norm_ : 0.0; }
    void set_last_norm(double norm) noexcept { last_norm_ = norm; }
    /// Factor for the loss of the next step.
    [[nodiscard]] double loss_scale() const noexcept { return scaler_.scale(); }
    /// Bytes in the space's memory, without the parameters.
    [[nodiscard]] std::int64_t bytes() const noexcept { return state_.bytes() + updates_.bytes(); }

    /// Whether replicas share the state, which makes read_state collective among the replicas of a block.
    [[nodiscard]] bool is_sharded() const noexcept { return options_.replicas.sharded; }
    /// Copies the state of one block of `parameters`, other replicas' shares included.
    template <class Parameters>
    [[nodiscard]] rank_state read_state(Parameters& parameters, const typename Parameters::block& of,
                                        const any_transport& transport) {
        updates_.wait();
        const element_range range{of.first, of.size};
        const auto whole = [&](std::vector<float> mine, bool factored = false) {
            if (is_sharded()) { mine = gathered(range, mine, transport); }
            parameters.to_checkpoint(of, std::span{mine}, factored);
            return mine;
        };
        rank_state all{whole(state_.read_weights(range, parameters.values())), whole(state_.read_first_moment(range)),
                       whole(state_.read_second_moment(range), is_factored())};
        all.average = options_.form.averages ? whole(state_.read_average(range)) : all.weights;
        return all;
    }
    /// Sets a block's state as read_state returned it, on this backend or another. Throws input_error for another
    /// block's sizes or another form of moments, before anything changes.
    template <class Parameters>
    void set_state(rank_state kept, Parameters& parameters, const typename Parameters::block& of) {
        const element_range range{of.first, of.size};
        const auto in_space = [&](std::vector<float>& values, bool factored = false) {
            parameters.to_space(of, std::span{values}, factored);
            return std::span<const float>{values};
        };
        require_size("averages of a block", kept.average.size(), of.size);
        if (!state_.has_form(range, kept.first_moment.size(), kept.second_moment.size())) {
            throw input_error{"rank_optimizer: the moments do not fit the optimizer's form of moments or the block"};
        }
        start_block(parameters, of, kept.weights);
        state_.set_first_moment(range, in_space(kept.first_moment));
        state_.set_second_moment(range, in_space(kept.second_moment, is_factored()));
        state_.set_average(range, in_space(kept.average));
    }

    /// One step at `learning_rate`; `step` counts from 1. `losses`, in the space's memory, has one value per microbatch
    /// of the replica, and is empty on a rank without losses. Collective over the transport. Throws input_error, before
    /// any exchange or change, when sizes differ from those at construction; not_finite_error naming what is not
    /// finite, where the loss is not scaled.
    template <class Parameters>
    step_outcome step(Parameters& parameters, const any_transport& transport, std::int64_t step, double learning_rate,
                      std::span<const double> losses, bool stop) {
        require_counted(step);
        measure(parameters, transport, losses, stop);
        return apply(parameters, transport, step, learning_rate);
    }
    /// First half of a step: the sum over ranks, which changes no parameters. Throws as step does.
    template <class Parameters>
    void measure(Parameters& parameters, const any_transport& transport, std::span<const double> losses, bool stop) {
        require_size("parameters", parameters.values().size(), size_);
        if (!losses.empty()) { require_size("losses", losses.size(), microbatches_); }
        const double scale = scaler_.scale();
        std::fill(shared_.begin(), shared_.end(), 0.0);
        if (!options_.gradient_release) { updates_.square(parameters.gradients().data(), 0, squares_.size()); }
        updates_.read(losses, squares_,
                      std::span{shared_}.subspan(square_count() + replica() * microbatches_, microbatches_));
        for (std::size_t i = 0; i != positions_.size(); ++i) { shared_[positions_[i]] = squares_[i] / (scale * scale); }
        shared_.back() = stop ? 1.0 : 0.0;
        transport.sum(shared_);
        if (!scaler_.on()) { require_finite(measured_losses(), measured_squares(), replicas()); }
    }
    /// Updates layers `first` to `last`, one stage, where gradients are released: its gradients are summed over
    /// replicas and not read again. Every stage is updated before measure() of the step.
    template <class Parameters>
    void update_layers(Parameters& parameters, int first, int last, std::int64_t step, double learning_rate) {
        require_counted(step);
        const auto blocks = parameters.blocks();
        const auto in_front = [](const auto& b, int layer) { return layer > std::max(b.layer, 0); };
        const auto from = std::lower_bound(blocks.begin(), blocks.end(), first, in_front);
        const auto end = std::lower_bound(from, blocks.end(), last + 1, in_front);
        if (from == end) { return; }
        updates_.square(parameters.gradients().data(), static_cast<std::size_t>(from - blocks.begin()),
                        static_cast<std::size_t>(end - from));
        const auto& back = *(end - 1);
        update_pieces(parameters, {from->first, back.first + back.size - from->first},
                      clip_scale(last_norm(), options_.clip_norm), step, learning_rate);
    }
    /// Second half of a step: the update, from what measure() summed.
    template <class Parameters>
    step_outcome apply(Parameters& parameters, const any_transport& transport, std::int64_t step,
                       double learning_rate) {
        require_counted(step);
        const std::span<const double> squares = measured_squares();
        const bool finite = std::ranges::all_of(squares, [](double x) { return std::isfinite(x); });
        step_outcome outcome{
            .gradient_norm = std::numeric_limits<double>::infinity(), .stop = shared_.back() > 0, .skipped = !finite};
        for (const double share : measured_losses()) { outcome.loss += share; }
        if (finite) {
            const gradient_clip clip = clip_by_global_norm(squares, options_.clip_norm);
            outcome.gradient_norm = clip.norm;
            if (!options_.gradient_release) {
                const double kept =
                    options_.clip_by_last_norm ? clip_scale(last_norm_, options_.clip_norm) : clip.scale;
                update_pieces(parameters, {0, size_}, kept / scaler_.scale(), step, learning_rate);
            }
            last_norm_ = clip.norm;
            if (options_.replicas.sharded) { updates_.exchange(exchange_, transport); }
        }
        scaler_.update(finite);
        outcome.loss_scale = scaler_.scale();
        return outcome;
    }

private:
    using array = typename space::template array<float>;

    static void require_size(const char* what, std::size_t found, std::size_t wanted) {
        if (found != wanted) {
            throw input_error{"rank_optimizer: number of " + std::string{what} + " must be " + std::to_string(wanted) +
                              ", not " + std::to_string(found)};
        }
    }
    static void require_counted(std::int64_t step) {
        if (step < 1) { throw input_error{"rank_optimizer: step must be at least 1, not " + std::to_string(step)}; }
    }
    /// One piece per tensor where moments are factored. Otherwise one piece for everything, unless gradients are
    /// released, state is sharded or an update depends on a weight's position, which must depend neither on the cut nor
    /// on sharding: then one per replica's share of every layer.
    template <class Parameters>
    [[nodiscard]] static std::vector<update_piece> pieces_of(const Parameters& parameters, const optimizer_options& o) {
        const optimizer_replicas& replicas = o.replicas;
        const bool factored = o.form.is_factored();
        if (!replicas.sharded && !o.form.has_places() && !factored && !o.gradient_release) {
            return {{{0, parameters.values().size()}, 0}};
        }
        std::vector<update_piece> pieces;
        const auto number_of = [](const auto& b, std::size_t first) {
            return (static_cast<std::uint64_t>(b.layer - conditioning_block) << 40U) + (first - b.first);
        };
        if (factored) {
            const auto tensors = parameters.tensors();
            const std::size_t listed = tensors.empty() ? 0 : tensors.back().first + tensors.back().size;
            require_size("elements in tensors", listed, parameters.values().size());
            auto block = parameters.blocks().begin();
            for (const auto& t : tensors) {
                while (t.first >= block->first + block->size) { ++block; }
                pieces.push_back({{t.first, t.size}, number_of(*block, t.first), t.rows, block->shift});
            }
            return pieces;
        }
        for (const auto& b : parameters.blocks()) {
            for (int r = 0; r != replicas.place.replicas(); ++r) {
                if (replicas.sharded && r != replicas.place.replica) { continue; }
                const element_range mine = share_of({b.first, b.size}, replicas.place.replicas(), r);
                if (mine.size == 0) { continue; }
                pieces.push_back({mine, number_of(b, mine.first), 0, b.shift});
            }
        }
        return pieces;
    }
    [[nodiscard]] bool is_factored() const noexcept { return options_.form.is_factored(); }
    [[nodiscard]] const replica_place& place() const noexcept { return options_.replicas.place; }
    [[nodiscard]] std::size_t replicas() const noexcept { return static_cast<std::size_t>(place().replicas()); }
    [[nodiscard]] std::size_t replica() const noexcept { return static_cast<std::size_t>(place().replica); }
    /// The conditioning module precedes layer 0.
    [[nodiscard]] static std::size_t position_of(int layer) noexcept {
        return static_cast<std::size_t>(layer - conditioning_block);
    }
    /// Squares of every replica's share of the conditioning module, then of layer 0, and so on.
    [[nodiscard]] std::size_t square_count() const noexcept { return (layers_ + 1) * replicas(); }
    [[nodiscard]] std::span<const double> measured_squares() const noexcept {
        return std::span{shared_}.first(square_count());
    }
    /// Losses of every microbatch of all replicas.
    [[nodiscard]] std::span<const double> measured_losses() const noexcept {
        return std::span{shared_}.subspan(square_count(), replicas() * microbatches_);
    }
    /// Sets the weights of a block, given in the checkpoint's order; reorders `weights` in place.
    template <class Parameters>
    void start_block(Parameters& parameters, const typename Parameters::block& b, std::span<float> weights) {
        require_size("weights of a block", weights.size(), b.size);
        updates_.wait();
        array layer(b.size);
        parameters.to_space(b, weights);
        space::template upload<float>(weights, layer.data());
        updates_.round(layer.data(), parameters.values().data() + b.first, b.size);
        updates_.wait();
        state_.start(b.first, weights);
    }
    /// Assembles a block's state from the shares of all replicas.
    [[nodiscard]] std::vector<float> gathered(const element_range& block, std::span<const float> mine,
                                              const any_transport& transport) {
        array all(block.size);
        const std::array<element_range, 1> alone{{{0, block.size}}};
        const element_range share = share_of(alone[0], place().replicas(), place().replica);
        space::template upload<float>(mine, all.data() + share.first);
        weight_exchange shares{place(), std::span<const element_range>{alone},
                               std::span<float>{all.data(), block.size}};
        updates_.exchange(shares, transport);
        updates_.wait();
        std::vector<float> here(block.size);
        space::template download<float>(all.data(), here);
        return here;
    }

    /// Updates the pieces that begin in `range`.
    template <class Parameters>
    void update_pieces(Parameters& parameters, const element_range& range, double gradient_scale, std::int64_t step,
                       double learning_rate) {
        // skipped steps do not count in bias corrections
        const std::int64_t applied = std::max<std::int64_t>(1, step - scaler_.now().skipped_steps);
        optimizer_update now{options_.constants, applied, gradient_scale, ema_decay(applied, options_.average_decay),
                             options_.seed};
        now.constants.learning_rate = learning_rate;
        for (std::size_t i = 0; i != state_.pieces().size(); ++i) {
            const std::size_t first = state_.pieces()[i].range.first;
            if (first < range.first || first >= range.first + range.size) { continue; }
            updates_.update(now, state_.arrays(i, parameters.values().data(), parameters.gradients().data()));
        }
    }

    std::size_t layers_;
    std::size_t microbatches_;
    optimizer_options options_;
    Updates updates_;
    loss_scaler scaler_;
    double last_norm_{};
    std::size_t size_;
    optimizer_state<Updates> state_;
    std::vector<double> shared_; ///< squares, losses and the stop request: of the rank, then summed over all
    std::vector<double> squares_{};
    std::vector<std::size_t> positions_{};
    weight_exchange exchange_{};
};

} // namespace pulse::train
