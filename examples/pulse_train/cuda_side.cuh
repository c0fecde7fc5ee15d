#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/backend.cuh>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/device_images.cuh>
#include <pulse/cuda/diffusion_task.cuh>
#include <pulse/cuda/layer_timer.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/rank_optimizer.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/plan/replica_place.hpp>
#include <pulse/profile/measure.hpp>
#include <pulse/runtime/measure_links.hpp>
#include <pulse/runtime/weight_exchange.hpp>
#include <pulse/train/rank_optimizer.hpp>

#include "loss_scaling.hpp"
#include "rank_collectives.hpp"
#include "rank_results.hpp"
#include "run_inputs.hpp"
#include "synthetic.hpp"

namespace pulse_train {

/// Training on CUDA devices under a precision, on ranks that are threads or processes, each with a stream on its
/// device: a side (see host_side). Several ranks may share a device.
template <class Precision>
class cuda_side {
public:
    using math = pulse::cuda::backend<Precision>;
    using scalar = typename math::scalar;

    /// Throws input_error when there is no such device.
    explicit cuda_side(const arguments& a) : devices_{a.gpus}, processes_{a.processes} {
        if (processes_ != nullptr) {
            devices_ = {processes_->device()};
            return;
        }
        pulse::cuda::widen_queues();
        const int count = pulse::cuda::device_count();
        if (count == 0) { throw pulse::input_error{"--backend cuda: there is no CUDA device"}; }
        if (devices_.empty()) {
            for (int d = 0; d != count; ++d) { devices_.push_back(d); }
        }
        for (const int d : devices_) {
            if (d >= count) {
                throw pulse::input_error{"--gpus: there is no CUDA device " + std::to_string(d) + ", there are " +
                                         std::to_string(count)};
            }
        }
    }

    [[nodiscard]] math make_math(const pulse::any_transport& of_rank) const { return math{stream_of(of_rank)}; }
    static void wait(const math& of_rank) { of_rank.synchronize(); }
    [[nodiscard]] static scalar to_scalar(float value) { return pulse::cuda::from_float<scalar>(value); }
    [[nodiscard]] static float to_float(scalar value) { return pulse::cuda::to_float(value); }

    template <class Body>
    void run_ranks(const run_inputs& in, const Body& body) const {
        if (processes_ != nullptr) {
            processes_->run(in, body);
        } else {
            run_workers(in.ranks(), body);
        }
    }
    /// Those that follow each other share a device where there are more of them than devices.
    template <class Body>
    void run_workers(int ranks, const Body& body) const {
        const auto count = static_cast<int>(devices_.size());
        std::vector<int> of_ranks;
        for (int r = 0; r != ranks; ++r) {
            of_ranks.push_back(devices_[static_cast<std::size_t>(ranks < count ? r : r * count / ranks)]);
        }
        pulse::cuda::run_ranks(std::move(of_ranks), {},
                               [&](pulse::cuda::thread_transport& among) { body(pulse::any_transport{among}); });
    }

    /// Of the thread's device.
    [[nodiscard]] static pulse::link_measurement memory_of_rank() {
        const pulse::cuda::device_properties here = pulse::cuda::properties_of(pulse::cuda::current_device());
        return {.memory_bytes = static_cast<std::int64_t>(here.memory_bytes), .device = here.bus_id};
    }
    template <class Model>
    [[nodiscard]] static pulse::cost_table measured_costs(math& backend, int batch) {
        pulse::cuda::layer_timer<Model, math> timer{backend, batch};
        constexpr auto graph = pulse::graph_of<Model>();
        const std::string name = pulse::cuda::properties_of(pulse::cuda::current_device()).name;
        return pulse::measure_costs(graph.view(), batch, sizeof(scalar),
                                    pulse::label{std::string_view{name}.substr(0, pulse::label::capacity - 1)}, timer,
                                    {.warm_up_sweeps = 2, .sweeps = 3});
    }

    /// The data and the loss of a rank, on its device.
    class task {
    public:
        task(const run_inputs& in, const pulse::any_transport& of_rank, std::function<void()> on_optimize) :
            images_{*in.images}, steps_{images_, *in.noise, in.task_options(of_rank.rank()), stream_of(of_rank),
                                        std::move(on_optimize)},
            texts_{in.texts}, stream_{stream_of(of_rank)}, batch_{static_cast<std::size_t>(in.plan.microbatch_size)},
            first_{static_cast<std::size_t>(in.place_of(of_rank.rank()).replica) * steps_.samples_of_replica()} {
            if (!in.texts_are_for(of_rank.rank())) { return; }
            std::vector<scalar> scalars(texts_->values().size());
            std::transform(texts_->values().begin(), texts_->values().end(), scalars.begin(), to_scalar);
            table_ = pulse::cuda::device_memory<scalar>{scalars.size()};
            pulse::cuda::upload<scalar>(scalars.data(), table_.data(), scalars.size());
            text_ = pulse::cuda::device_memory<scalar>{steps_.samples_of_replica() * texts_->elements()};
        }

        [[nodiscard]] std::size_t samples_of_step() const noexcept { return steps_.samples_of_step(); }
        void begin(std::uint64_t position, double loss_scale) {
            steps_.begin(position, loss_scale);
            if (text_.size() == 0) { return; }
            const std::size_t n = texts_->elements();
            for (std::size_t i = 0; i != steps_.samples_of_replica(); ++i) {
                const std::size_t from = text_states::prompt_of(images_.data().index_at(position + first_ + i));
                pulse::cuda::copy_async<scalar>(text_.data() + i * n, table_.data() + from * n, n, stream_);
            }
        }

        [[nodiscard]] const float* timesteps(int microbatch) const noexcept { return steps_.timesteps(microbatch); }
        [[nodiscard]] const scalar* text(int microbatch) const noexcept {
            return text_.data() + static_cast<std::size_t>(microbatch) * batch_ * texts_->elements();
        }
        void input(int microbatch, scalar* x) { steps_.input(microbatch, x); }
        void loss(int microbatch, const scalar* y, scalar* dy) { steps_.loss(microbatch, y, dy); }
        void optimize() { steps_.optimize(); }
        [[nodiscard]] const double* losses() const noexcept { return steps_.losses(); }

    private:
        pulse::cuda::device_images images_;
        pulse::cuda::diffusion_task<Precision> steps_;
        const text_states* texts_;
        cudaStream_t stream_;
        std::size_t batch_;
        std::size_t first_; ///< of the replica's samples in those of a step
        pulse::cuda::device_memory<scalar> table_{};
        pulse::cuda::device_memory<scalar> text_{};
    };

    /// AdamW and the moving average of what a rank owns, on its device.
    class optimizer {
    public:
        template <class Parameters>
        optimizer(const run_inputs& in, std::size_t layers, Parameters& parameters,
                  const pulse::any_transport& of_rank) :
            transport_{of_rank},
            replicas_{in.replicas_of(of_rank.rank())}, stream_{stream_of(of_rank)},
            adamw_{layers,
                   static_cast<std::size_t>(in.plan.microbatches),
                   parameters,
                   {.constants = in.adamw(),
                    .clip_norm = in.args.clip_norm,
                    .average_decay = in.args.average_decay,
                    .scaling = {},
                    .replicas = replicas_},
                   stream_of(of_rank)} {}

        template <class Parameters>
        void start(std::span<const float> values, Parameters& parameters) {
            adamw_.start(values, parameters);
        }
        template <class Parameters>
        pulse::train::step_outcome step(Parameters& parameters, const pulse::any_transport& among, std::int64_t step,
                                        double learning_rate, const task& of, bool stop) {
            return adamw_.step(parameters, among, step, learning_rate, of.losses(), stop);
        }
        [[nodiscard]] double loss_scale() const noexcept { return adamw_.loss_scale(); }
        [[nodiscard]] std::int64_t bytes() const noexcept { return adamw_.bytes(); }

        /// See loss_scaling.
        [[nodiscard]] loss_scaling scaling() {
            const auto now = adamw_.scaler().now();
            if (!Precision::scales_loss) { return {kept_.scale, kept_.good_steps, now.skipped_steps}; }
            return {now.scale, now.good_steps, now.skipped_steps};
        }
        void set_scaling(const loss_scaling& kept) {
            kept_ = kept;
            // who wrote the checkpoint may not have scaled
            if (!Precision::scales_loss) {
                adamw_.scaler().resume({1, 0, kept.skipped_steps});
            } else if (kept.scale > 0) {
                adamw_.scaler().resume({kept.scale, kept.good_steps, kept.skipped_steps});
            }
        }

        template <class Parameters, class Use>
        void set_state(Parameters& parameters, const Use& use) {
            host_copy copy{parameters.values().size()};
            use(rank_state<float>{copy.weights, copy.first_moment, copy.second_moment, copy.average});
            if (replicas_.sharded) {
                adamw_.start(copy.weights, parameters);
                put_shares(copy.first_moment, adamw_.first_moment());
                put_shares(copy.second_moment, adamw_.second_moment());
                return put_shares(copy.average, adamw_.average());
            }
            const auto put = [](const std::vector<float>& from, std::span<float> to) {
                pulse::cuda::upload<float>(from.data(), to.data(), to.size());
            };
            put(copy.weights, adamw_.weights(parameters));
            put(copy.first_moment, adamw_.first_moment());
            put(copy.second_moment, adamw_.second_moment());
            put(copy.average, adamw_.average());
            adamw_.copy_weights(parameters);
        }
        template <class Parameters, class Use>
        void read_state(Parameters& parameters, const Use& use) {
            host_copy copy{parameters.values().size()};
            pulse::cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
            if (replicas_.sharded) {
                // Where no master weights are kept, every replica has all of them.
                const auto weights = adamw_.weights(parameters);
                if (weights.size() == copy.weights.size()) {
                    pulse::cuda::download<float>(weights.data(), copy.weights.data(), weights.size());
                } else {
                    get_shares(parameters, weights, copy.weights);
                }
                get_shares(parameters, adamw_.first_moment(), copy.first_moment);
                get_shares(parameters, adamw_.second_moment(), copy.second_moment);
                get_shares(parameters, adamw_.average(), copy.average);
                return use(rank_state<const float>{copy.weights, copy.first_moment, copy.second_moment, copy.average});
            }
            const auto get = [](std::span<const float> from, std::vector<float>& to) {
                pulse::cuda::download<float>(from.data(), to.data(), to.size());
            };
            get(adamw_.weights(parameters), copy.weights);
            get(adamw_.first_moment(), copy.first_moment);
            get(adamw_.second_moment(), copy.second_moment);
            get(adamw_.average(), copy.average);
            use(rank_state<const float>{copy.weights, copy.first_moment, copy.second_moment, copy.average});
        }

    private:
        struct host_copy {
            explicit host_copy(std::size_t n) : weights(n), first_moment(n), second_moment(n), average(n) {}
            std::vector<float> weights, first_moment, second_moment, average;
        };

        /// The rank's shares of an array of all parameters.
        void put_shares(const std::vector<float>& from, std::span<float> to) const {
            std::size_t at = 0;
            for (const pulse::element_range& r : adamw_.owned()) {
                pulse::cuda::upload<float>(from.data() + r.first, to.data() + at, r.size);
                at += r.size;
            }
        }
        /// The shares of all replicas, by way of the device: all ranks call it.
        template <class Parameters>
        void get_shares(const Parameters& parameters, std::span<const float> mine, std::vector<float>& to) {
            pulse::cuda::device_memory<float> all{to.size()};
            std::size_t at = 0;
            for (const pulse::element_range& r : adamw_.owned()) {
                pulse::cuda::copy_async<float>(all.data() + r.first, mine.data() + at, r.size, stream_);
                at += r.size;
            }
            pulse::weight_exchange shares{replicas_.place, parameters.blocks(),
                                          std::span<float>{all.data(), to.size()}};
            pulse::cuda::run_in_order(shares, transport_, stream_);
            pulse::cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
            pulse::cuda::download<float>(all.data(), to.data(), to.size());
        }

        pulse::any_transport transport_;
        pulse::train::optimizer_replicas replicas_;
        cudaStream_t stream_;
        pulse::cuda::rank_optimizer<Precision> adamw_;
        loss_scaling kept_{};
    };

private:
    [[nodiscard]] static cudaStream_t stream_of(const pulse::any_transport& of_rank) {
        return static_cast<cudaStream_t>(of_rank.streams().work);
    }

    std::vector<int> devices_;
    rank_collectives* processes_;
};

} // namespace pulse_train
