#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <unistd.h>

#include <pulse/onednn/adamw.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/profile/measure.hpp>
#include <pulse/runtime/layer_bench.hpp>
#include <pulse/runtime/measure_links.hpp>
#include <pulse/runtime/weight_exchange.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/initial_values.hpp>
#include <pulse/train/rank_optimizer.hpp>

#include "loss_scaling.hpp"
#include "rank_collectives.hpp"
#include "rank_results.hpp"
#include "run_inputs.hpp"
#include "synthetic.hpp"

namespace pulse_train {

/// Training on the host in floats, on ranks that are threads or processes: a side, which says where training runs. A
/// side has
/// - `math`, `task`: a backend and the task of a rank's executor;
/// - `optimizer`: of a rank; its weights, moments and average are read and set as host memory, and it keeps the
///   loss_scaling of the run;
/// - `run_ranks(in, body)`: body(transport) once for each rank of the run that this process has, and
///   `run_workers(count, body)`: the same on threads of this process in any case;
/// - `make_math(transport)`: what a rank computes with, and `wait(math)` until that is done;
/// - `to_scalar` and `to_float`: of one value of the backend;
/// - `memory_of_rank()`: the memory of the rank's device, and the device's name, and
///   `measured_costs<Model>(math, batch)`: the profile of a model on it.
class host_side {
public:
    using math = pulse::host::onednn_backend;
    using scalar = math::scalar;

    explicit host_side(const arguments& a) : threads_{a.threads}, processes_{a.processes} {}

    [[nodiscard]] math make_math(const pulse::any_transport&) const { return math{threads_}; }
    static void wait(const math&) noexcept {}
    [[nodiscard]] static scalar to_scalar(float value) noexcept { return value; }
    [[nodiscard]] static float to_float(scalar value) noexcept { return value; }

    template <class Body>
    void run_ranks(const run_inputs& in, const Body& body) const {
        if (processes_ != nullptr) {
            processes_->run(in, body);
        } else {
            run_workers(in.ranks(), body);
        }
    }
    template <class Body>
    void run_workers(int count, const Body& body) const {
        pulse::host::run_ranks(count, {},
                               [&](pulse::host::thread_transport& among) { body(pulse::any_transport{among}); });
    }
    /// All memory of the machine, which its ranks share.
    [[nodiscard]] static pulse::link_measurement memory_of_rank() {
        return {.memory_bytes = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE)};
    }
    template <class Model>
    [[nodiscard]] static pulse::cost_table measured_costs(math& backend, int batch) {
        pulse::layer_bench<Model, math> bench{backend, batch};
        constexpr auto graph = pulse::graph_of<Model>();
        return pulse::measure_costs(graph.view(), batch, sizeof(scalar), pulse::label{"host"}, bench,
                                    {.warm_up_sweeps = 1, .sweeps = 3});
    }

    /// The data and the loss of a rank.
    class task : public pulse::train::diffusion_task {
    public:
        task(const run_inputs& in, const pulse::any_transport& of_rank, std::function<void()> on_optimize) :
            diffusion_task{*in.images, *in.noise, in.task_options(of_rank.rank()), std::move(on_optimize)},
            images_{*in.images}, texts_{in.texts}, batch_{static_cast<std::size_t>(in.plan.microbatch_size)},
            first_{static_cast<std::size_t>(in.place_of(of_rank.rank()).replica) * samples_of_replica()} {
            if (in.texts_are_for(of_rank.rank())) { text_.resize(samples_of_replica() * texts_->elements()); }
        }

        void begin(std::uint64_t position, double) {
            diffusion_task::begin(position);
            if (text_.empty()) { return; }
            auto to = text_.begin();
            for (std::size_t i = 0; i != samples_of_replica(); ++i) {
                const auto from = texts_->of_prompt(text_states::prompt_of(images_.index_at(position + first_ + i)));
                to = std::copy(from.begin(), from.end(), to);
            }
        }
        [[nodiscard]] const float* text(int microbatch) const noexcept {
            return text_.data() + static_cast<std::size_t>(microbatch) * batch_ * texts_->elements();
        }

    private:
        const pulse::train::image_dataset& images_;
        const text_states* texts_;
        std::size_t batch_;
        std::size_t first_; ///< of the replica's samples in those of a step
        std::vector<float> text_{};
    };

    /// AdamW and the moving average of what a rank owns.
    class optimizer {
    public:
        template <class Parameters>
        optimizer(const run_inputs& in, std::size_t layers, Parameters& parameters, const pulse::any_transport& among) :
            transport_{among}, replicas_{in.replicas_of(among.rank())}, adamw_{layers,
                                                                               static_cast<std::size_t>(
                                                                                   in.plan.microbatches),
                                                                               parameters,
                                                                               replicas_,
                                                                               in.adamw(),
                                                                               in.args.clip_norm,
                                                                               in.args.average_decay} {}

        template <class Parameters>
        void start(std::span<const float> values, Parameters& parameters) {
            std::copy(values.begin(), values.end(), parameters.values().begin());
            adamw_.start_average(values);
        }
        template <class Parameters>
        pulse::train::step_outcome step(Parameters& parameters, const pulse::any_transport& among, std::int64_t step,
                                        double learning_rate, const task& of, bool stop) {
            return adamw_.step(parameters, among, step - scaling_.skipped_steps, learning_rate, of.losses(), stop);
        }
        [[nodiscard]] double loss_scale() const noexcept { return 1; }
        [[nodiscard]] loss_scaling scaling() const noexcept { return scaling_; }
        void set_scaling(const loss_scaling& kept) noexcept { scaling_ = kept; }
        [[nodiscard]] std::int64_t bytes() const noexcept { return adamw_.bytes(); }

        /// Calls use(rank_state<float>) with all that a rank keeps; what `use` writes there, the rank goes on with.
        template <class Parameters, class Use>
        void set_state(Parameters& parameters, const Use& use) {
            if (!replicas_.sharded) {
                return use(rank_state<float>{parameters.values(), adamw_.first_moment(), adamw_.second_moment(),
                                             adamw_.average()});
            }
            std::vector<float> whole[3];
            for (auto& values : whole) { values.resize(parameters.values().size()); }
            use(rank_state<float>{parameters.values(), whole[0], whole[1], whole[2]});
            std::size_t at = 0;
            for (const pulse::element_range& r : adamw_.owned()) {
                for (std::size_t state = 0; state != 3; ++state) {
                    const auto from = std::span{whole[state]}.subspan(r.first, r.size);
                    std::copy(from.begin(), from.end(), shares()[state].begin() + static_cast<std::ptrdiff_t>(at));
                }
                at += r.size;
            }
        }
        /// Calls use(rank_state<const float>) with all that a rank keeps, and that other replicas keep of its
        /// parameters: all ranks call it.
        template <class Parameters, class Use>
        void read_state(const Parameters& parameters, const Use& use) {
            if (replicas_.sharded) {
                std::vector<float> whole[3];
                for (std::size_t state = 0; state != 3; ++state) {
                    whole[state].resize(parameters.values().size());
                    auto from = shares()[state].begin();
                    for (const pulse::element_range& r : adamw_.owned()) {
                        std::copy_n(from, r.size, whole[state].begin() + static_cast<std::ptrdiff_t>(r.first));
                        from += static_cast<std::ptrdiff_t>(r.size);
                    }
                    pulse::weight_exchange{replicas_.place, parameters.blocks(), std::span{whole[state]}}.run(
                        transport_);
                }
                return use(rank_state<const float>{parameters.values(), whole[0], whole[1], whole[2]});
            }
            use(rank_state<const float>{parameters.values(), adamw_.first_moment(), adamw_.second_moment(),
                                        adamw_.average()});
        }

    private:
        [[nodiscard]] std::array<std::span<float>, 3> shares() noexcept {
            return {adamw_.first_moment(), adamw_.second_moment(), adamw_.average()};
        }

        pulse::any_transport transport_;
        pulse::train::optimizer_replicas replicas_;
        pulse::train::basic_rank_optimizer<pulse::host::fused_adamw> adamw_;
        loss_scaling scaling_{};
    };

private:
    int threads_;
    rank_collectives* processes_;
};

} // namespace pulse_train
