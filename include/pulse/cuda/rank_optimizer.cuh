#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/kernels/adamw.cuh>
#include <pulse/cuda/kernels/convert.cuh>
#include <pulse/cuda/kernels/sum_of_squares.cuh>
#include <pulse/cuda/loss_scale.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/optimizer_rule.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/transport.hpp>
#include <pulse/runtime/weight_exchange.hpp>
#include <pulse/train/adamw.hpp>
#include <pulse/train/clip.hpp>
#include <pulse/train/ema.hpp>
#include <pulse/train/not_finite.hpp>
#include <pulse/train/rank_optimizer.hpp>

namespace pulse::cuda {

/// What is agreed between ranks at the end of a step.
struct step_outcome : train::step_outcome {
    bool skipped{};       ///< gradients overflowed: nothing changed but the loss scale
    double loss_scale{1}; ///< of the next step
};

/// What of an optimizer is the same on every rank.
struct optimizer_options {
    adamw_constants constants{};
    double clip_norm{};          ///< 0 does not clip
    double average_decay{0.999}; ///< limit of the average's warm-up
    loss_scaling scaling{};      ///< read where the precision scales the loss
    train::optimizer_replicas replicas{};
};

/// Exchanges weights behind what is in `stream`, and what is put there later is behind that.
inline void run_in_order(weight_exchange& weights, const any_transport& transport, cudaStream_t stream) {
    const auto reductions = static_cast<cudaStream_t>(transport.streams().reductions);
    event reached;
    reached.record(stream);
    reached.block(reductions);
    weights.run(transport);
    reached.record(reductions);
    reached.block(stream);
}

/// AdamW with global-norm clipping and a moving average, for the parameters that one rank owns, on a device: the
/// counterpart of train::basic_rank_optimizer, with the same protocol over ranks and the same bits however the model is
/// cut.
///
/// Master weights, moments and average are floats of its own (where scalars are floats, the parameters themselves are
/// the master weights). A step waits for the device once, for the sums of squares and the losses; the update itself is
/// left in the stream, and where state is sharded over replicas, their new weights come behind it.
template <class Precision = bf16>
class rank_optimizer {
public:
    using scalar = typename Precision::scalar;
    static constexpr bool keeps_master = !std::is_same_v<scalar, float>;

    /// `layers` and `microbatches`: of the model and of a replica's step. `parameters`: rank_parameters<scalar, float>
    /// on the calling thread's device, of this rank; with sharded state they must stay where they are. All work goes
    /// into `stream`, which must be the backend's. Throws input_error naming what is out of range.
    template <class Parameters>
    rank_optimizer(std::size_t layers, std::size_t microbatches, Parameters& parameters,
                   const optimizer_options& options, cudaStream_t stream) :
        layers_{layers},
        microbatches_{microbatches}, options_{checked(layers, microbatches, options)}, stream_{stream},
        scaler_{Precision::scales_loss ? loss_scaler{options.scaling} : loss_scaler{}},
        size_{parameters.values().size()}, owned_{owned_of(parameters, options.replicas)},
        owned_size_{size_of(owned_)}, master_{keeps_master ? owned_size_ : 0}, first_moment_{owned_size_},
        second_moment_{owned_size_}, average_{owned_size_}, host_sums_{parameters.blocks().size() + microbatches},
        shared_(square_count() + replicas() * microbatches + 1) {
        if (options.replicas.sharded) {
            exchange_ = weight_exchange{options.replicas.place, std::span{parameters.blocks()}, parameters.values()};
        }
        std::vector<value_chunk> chunks;
        std::vector<std::int32_t> first{0};
        for (const auto& b : parameters.blocks()) {
            if (b.layer < conditioning_block || position_of(b.layer) > layers_) {
                throw input_error{"rank_optimizer: the parameters are of layer " + std::to_string(b.layer) +
                                  ", it was made for " + std::to_string(layers_) + " layers"};
            }
            positions_.push_back(position_of(b.layer) * replicas() + replica());
            const element_range mine = share_of({b.first, b.size}, place().replicas(), place().replica);
            append_chunks(chunks, static_cast<std::int64_t>(mine.first), static_cast<std::int64_t>(mine.size));
            first.push_back(static_cast<std::int32_t>(chunks.size()));
        }
        chunks_ = uploaded(chunks);
        first_chunk_ = uploaded(first);
        squares_ = device_memory<double>{positions_.size()};
        scratch_ = device_memory<std::byte>{sums_of_squares_scratch_bytes(static_cast<std::int64_t>(chunks.size()))};
        on_ = {stream, properties_of(current_device()).multiprocessors, scratch_.data()};
        fill_bytes_async(master_.data(), 0, master_.size(), stream_);
        fill_bytes_async(first_moment_.data(), 0, owned_size_, stream_);
        fill_bytes_async(second_moment_.data(), 0, owned_size_, stream_);
        fill_bytes_async(average_.data(), 0, owned_size_, stream_);
    }

    /// Sets weights, their average and their compute copy to `values` on the host, in the order of the parameters.
    /// Throws input_error unless they are this rank's in number. Done on return.
    template <class Parameters>
    void start(std::span<const float> values, Parameters& parameters) {
        require_size("initial weights", values.size(), size_);
        if constexpr (keeps_master) {
            if (options_.replicas.sharded) {
                start_shares(values, parameters);
            } else {
                upload_async(values, master_.data());
                copy_weights(parameters);
            }
            copy_async<float>(average_.data(), master_.data(), owned_size_, stream_);
            check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        } else {
            upload_async(values, parameters.values().data());
            copy_owned(parameters.values().data(), average_.data());
            check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        }
    }

    /// Writes the parameters' values from the master weights: after these were read from a checkpoint. Where state is
    /// sharded, those of owned() alone; share_weights gives the others theirs.
    template <class Parameters>
    void copy_weights(Parameters& parameters) {
        if constexpr (keeps_master) {
            std::size_t at = 0;
            for (const element_range& r : owned_) {
                convert<float, scalar>(on_, static_cast<std::int64_t>(r.size), master_.data() + at,
                                       parameters.values().data() + r.first);
                at += r.size;
            }
        }
    }
    /// Gives all replicas the parameters' values that each of them owns, where state is sharded: every replica calls
    /// it.
    template <transport T>
    void share_weights(T& transport) {
        if (options_.replicas.sharded) { run_in_order(exchange_, transport, stream_); }
    }

    /// Of which parameters the state is, in order: what follows has the values of one range after the other.
    [[nodiscard]] std::span<const element_range> owned() const noexcept { return owned_; }
    /// On the device, for checkpoints; they may be written between steps. Weights are those of owned() where master
    /// weights are kept, else the parameters' values, all of them.
    template <class Parameters>
    [[nodiscard]] std::span<float> weights(Parameters& parameters) const noexcept {
        if constexpr (keeps_master) {
            return {master_.data(), owned_size_};
        } else {
            return parameters.values();
        }
    }
    [[nodiscard]] std::span<float> first_moment() const noexcept { return {first_moment_.data(), owned_size_}; }
    [[nodiscard]] std::span<float> second_moment() const noexcept { return {second_moment_.data(), owned_size_}; }
    [[nodiscard]] std::span<float> average() const noexcept { return {average_.data(), owned_size_}; }
    [[nodiscard]] loss_scaler& scaler() noexcept { return scaler_; }
    /// What the loss of the next step is to be multiplied by.
    [[nodiscard]] double loss_scale() const noexcept { return scaler_.scale(); }
    /// On the device, without the parameters.
    [[nodiscard]] std::int64_t bytes() const noexcept {
        return static_cast<std::int64_t>((master_.size() + 3 * owned_size_) * sizeof(float) + chunks_.bytes() +
                                         first_chunk_.bytes() + squares_.bytes() + scratch_.bytes());
    }

    /// One step at `learning_rate`; `step` counts from 1. `losses` is on the device, one value for each microbatch of
    /// the replica; null on a rank that has none. Gradients are zero afterwards. Every rank of the transport must call
    /// it. Throws input_error, before anything is exchanged, when sizes are not those that the optimizer was made for;
    /// error naming the layer or microbatch whose gradient or loss is not finite, where the loss is not scaled.
    template <class Parameters, transport T>
    step_outcome step(Parameters& parameters, T& transport, std::int64_t step, double learning_rate,
                      const double* losses, bool stop) {
        require_size("parameters", parameters.values().size(), size_);
        require_size("layers of parameters", parameters.blocks().size(), positions_.size());
        if (step < 1) { throw input_error{"rank_optimizer: step is " + std::to_string(step) + ", it counts from 1"}; }
        fetch(parameters.gradients().data(), losses);
        const double scale = scaler_.scale();
        std::fill(shared_.begin(), shared_.end(), 0.0);
        for (std::size_t i = 0; i != positions_.size(); ++i) {
            shared_[positions_[i]] = host_sums_.data()[i] / (scale * scale);
        }
        if (losses != nullptr) {
            const double* const from = host_sums_.data() + positions_.size();
            std::copy(from, from + microbatches_,
                      shared_.begin() + static_cast<std::ptrdiff_t>(square_count() + replica() * microbatches_));
        }
        shared_.back() = stop ? 1.0 : 0.0;
        transport.sum(shared_);

        const std::span<const double> all{shared_};
        const std::span<const double> squares = all.first(square_count());
        const bool finite = std::ranges::all_of(squares, [](double x) { return std::isfinite(x); });
        const std::span<const double> shares = all.subspan(square_count(), replicas() * microbatches_);
        if (!scaler_.on()) { train::require_finite(shares, squares, replicas()); }
        step_outcome outcome;
        outcome.stop = shared_.back() > 0;
        for (const double share : shares) { outcome.loss += share; }
        outcome.skipped = !finite;
        if (finite) {
            outcome.gradient_norm = update(parameters, squares, step, learning_rate, scale);
            share_weights(transport);
        } else {
            outcome.gradient_norm = std::numeric_limits<double>::infinity();
            fill_bytes_async(parameters.gradients().data(), 0, size_, stream_);
        }
        scaler_.update(finite);
        outcome.loss_scale = scaler_.scale();
        return outcome;
    }

private:
    /// The conditioning module stands before layer 0.
    [[nodiscard]] static std::size_t position_of(int layer) noexcept {
        return static_cast<std::size_t>(layer - conditioning_block);
    }
    [[nodiscard]] static const optimizer_options& checked(std::size_t layers, std::size_t microbatches,
                                                          const optimizer_options& o) {
        // what is out of range has the host's words
        static_cast<void>(train::rank_optimizer{layers, microbatches, 0, o.constants, o.clip_norm, o.average_decay});
        return o;
    }
    static void require_size(const char* what, std::size_t found, std::size_t wanted) {
        if (found != wanted) {
            throw input_error{"rank_optimizer: " + std::to_string(found) + " " + what + ", it was made for " +
                              std::to_string(wanted)};
        }
    }
    template <class Each>
    [[nodiscard]] static device_memory<Each> uploaded(const std::vector<Each>& values) {
        device_memory<Each> there{values.size()};
        upload<Each>(values.data(), there.data(), values.size());
        return there;
    }
    template <class Parameters>
    [[nodiscard]] static std::vector<element_range> owned_of(const Parameters& parameters,
                                                             const train::optimizer_replicas& replicas) {
        if (!replicas.sharded) { return {{0, parameters.values().size()}}; }
        return shares_of(std::span{parameters.blocks()}, replicas.place.replicas(), replicas.place.replica);
    }
    [[nodiscard]] static std::size_t size_of(const std::vector<element_range>& ranges) noexcept {
        std::size_t sum = 0;
        for (const element_range& r : ranges) { sum += r.size; }
        return sum;
    }
    [[nodiscard]] const replica_place& place() const noexcept { return options_.replicas.place; }
    [[nodiscard]] std::size_t replicas() const noexcept { return static_cast<std::size_t>(place().replicas()); }
    [[nodiscard]] std::size_t replica() const noexcept { return static_cast<std::size_t>(place().replica); }
    /// Squares of every replica's share of the conditioning module, then of layer 0, and so on.
    [[nodiscard]] std::size_t square_count() const noexcept { return (layers_ + 1) * replicas(); }

    void upload_async(std::span<const float> values, float* to) const {
        check(cudaMemcpyAsync(to, values.data(), values.size_bytes(), cudaMemcpyHostToDevice, stream_),
              "cudaMemcpyAsync");
    }
    /// Sets all compute copies and the master weights that are owned, layer by layer.
    template <class Parameters>
    void start_shares(std::span<const float> values, Parameters& parameters) {
        std::size_t most = 0;
        for (const auto& b : parameters.blocks()) { most = std::max(most, b.size); }
        const device_memory<float> layer{most};
        float* to = master_.data();
        for (const auto& b : parameters.blocks()) {
            upload_async(values.subspan(b.first, b.size), layer.data());
            convert<float, scalar>(on_, static_cast<std::int64_t>(b.size), layer.data(),
                                   parameters.values().data() + b.first);
            const element_range mine = share_of({0, b.size}, place().replicas(), place().replica);
            copy_async<float>(to, layer.data() + mine.first, mine.size, stream_);
            to += mine.size;
        }
        check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    }
    /// From an array of all parameters to one of those that are owned.
    void copy_owned(const float* all, float* to) const {
        for (const element_range& r : owned_) {
            copy_async<float>(to, all + r.first, r.size, stream_);
            to += r.size;
        }
    }

    /// The one wait of a step: every layer's sum of squares, then the losses.
    void fetch(const float* gradients, const double* losses) {
        sums_of_squares<float>(on_, gradients, static_cast<std::int64_t>(chunks_.size()), chunks_.data(),
                               static_cast<int>(positions_.size()), first_chunk_.data(), squares_.data());
        copy_async<double>(host_sums_.data(), squares_.data(), positions_.size(), stream_);
        if (losses != nullptr) {
            copy_async<double>(host_sums_.data() + positions_.size(), losses, microbatches_, stream_);
        }
        check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    }

    template <class Parameters>
    double update(Parameters& parameters, std::span<const double> squares, std::int64_t step, double learning_rate,
                  double scale) {
        const train::gradient_clip clip = train::clip_by_global_norm(squares, options_.clip_norm);
        adamw_constants constants = options_.constants;
        constants.learning_rate = learning_rate;
        // a skipped step is none: bias corrections count the others
        const std::int64_t applied = std::max<std::int64_t>(1, step - scaler_.now().skipped_steps);
        const auto factors = train::factors_of<float>(constants, applied, clip.scale / scale);
        const double decay = train::ema_decay(applied, options_.average_decay);
        std::size_t at = 0;
        for (const element_range& r : owned_) {
            adamw_arrays<scalar> arrays;
            arrays.gradients = parameters.gradients().data() + r.first;
            arrays.first_moment = first_moment_.data() + at;
            arrays.second_moment = second_moment_.data() + at;
            arrays.average = average_.data() + at;
            if constexpr (keeps_master) {
                arrays.weights = master_.data() + at;
                arrays.compute = parameters.values().data() + r.first;
            } else {
                arrays.weights = parameters.values().data() + r.first;
            }
            adamw<scalar>(on_, static_cast<std::int64_t>(r.size), factors, decay, arrays);
            at += r.size;
        }
        // Of other shares the replica has its own gradients alone, which nobody reads.
        if (options_.replicas.sharded) { fill_bytes_async(parameters.gradients().data(), 0, size_, stream_); }
        return clip.norm;
    }

    std::size_t layers_;
    std::size_t microbatches_;
    optimizer_options options_;
    cudaStream_t stream_;
    loss_scaler scaler_;
    std::size_t size_;
    std::vector<element_range> owned_;
    std::size_t owned_size_;
    weight_exchange exchange_{};
    device_memory<float> master_;
    device_memory<float> first_moment_;
    device_memory<float> second_moment_;
    device_memory<float> average_;
    pinned_memory<double> host_sums_;
    std::vector<double> shared_;
    std::vector<std::size_t> positions_{};
    device_memory<value_chunk> chunks_{};
    device_memory<std::int32_t> first_chunk_{};
    device_memory<double> squares_{};
    device_memory<std::byte> scratch_{};
    queue on_{};
};

} // namespace pulse::cuda
