#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <unistd.h>

#include <pulse/onednn/backend.hpp>
#include <pulse/profile/measure.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/layer_bench.hpp>
#include <pulse/runtime/measure_links.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/task.hpp>

#include "rank_collectives.hpp"
#include "run_inputs.hpp"
#include "synthetic.hpp"

namespace pulse_train {

/// Training on the host in floats, on ranks that are threads or processes: a side, which says where training runs. A
/// side has
/// - `math`, `task`: a backend and the task of a rank's trainer;
/// - `encodes`: whether frozen networks encode captioned pictures there (encoded_task);
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
    static constexpr bool encodes = true;

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
    class task : public pulse::train::diffusion_task<> {
    public:
        task(const run_inputs& in, const pulse::any_transport& of_rank) :
            diffusion_task{*in.images, *in.noise, in.task_options(of_rank.rank())}, images_{*in.images},
            texts_{in.texts}, batch_{static_cast<std::size_t>(in.plan.microbatch_size)},
            first_{static_cast<std::size_t>(in.place_of(of_rank.rank()).replica) * samples_of_replica()} {
            if (in.texts_are_for(of_rank.rank())) { text_.resize(samples_of_replica() * texts_->elements()); }
        }

        void begin(std::uint64_t position) {
            diffusion_task::begin(position);
            if (text_.empty()) { return; }
            auto to = text_.begin();
            for (std::size_t i = 0; i != samples_of_replica(); ++i) {
                const auto from = texts_->of_prompt(text_states::prompt_of(images_.index_at(position + first_ + i)));
                to = std::copy(from.begin(), from.end(), to);
            }
        }
        [[nodiscard]] const float* text(const pulse::work<math>& at) const noexcept {
            return text_.data() + static_cast<std::size_t>(at.microbatch) * batch_ * texts_->elements();
        }

    private:
        const pulse::train::image_dataset& images_;
        const text_states* texts_;
        std::size_t batch_;
        std::size_t first_; ///< of the replica's samples in those of a step
        std::vector<float> text_{};
    };

private:
    int threads_;
    rank_collectives* processes_;
};

} // namespace pulse_train
