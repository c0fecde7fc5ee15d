#pragma once

#include <cstdint>

#include <unistd.h>

#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/profile/measure.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/layer_bench.hpp>
#include <pulse/runtime/measure_links.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/diffusion_task.hpp>

#include "rank_collectives.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

/// Training on the host in fp32, on ranks that are threads or processes: a side, which defines where training runs. A
/// side has
/// - `math`, `task`: a backend and the task of a rank's trainer;
/// - `run_ranks(in, body)`: body(transport) once for each rank of the run that this process has, and
///   `run_workers(count, body)`: always on threads of this process;
/// - `wait(math)`: waits until a rank's computation is done;
/// - `to_scalar` and `to_float`: convert one value of the backend;
/// - `memory_of_rank()`: the memory of the rank's device, and the device's name, and
///   `measured_costs<Model>(math, batch, extent)`: the profile of a model on it;
/// - `time_engines<Models...>(in, of...)`, before the run's backends are made (see cuda_side).
class host_side {
public:
    using math = pulse::onednn::backend;
    using scalar = math::scalar;

    explicit host_side(const arguments& a) : processes_{a.processes} {}

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
        pulse::threads::run_ranks(count, {},
                                  [&](pulse::threads::transport& among) { body(pulse::any_transport{among}); });
    }
    /// All memory of the machine, shared by its ranks.
    [[nodiscard]] static pulse::link_measurement memory_of_rank() {
        return {.memory_bytes = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE)};
    }
    template <class Model>
    [[nodiscard]] static pulse::cost_table measured_costs(math& backend, int batch, const pulse::extent& to) {
        pulse::layer_bench<Model, math> bench{backend, batch, to};
        const auto graph = pulse::graph_of<Model>(pulse::resize<Model>(to));
        return pulse::measure_costs(graph.view(), batch, sizeof(scalar), pulse::label{"host"}, bench,
                                    {.warm_up_sweeps = 1, .sweeps = 3});
    }

    /// The host has no engines to choose.
    template <class... Models, class... Runs>
    static void time_engines(run_inputs&, const Runs&...) noexcept {}

    /// The data and the loss of a rank.
    class task : public pulse::train::diffusion_task<> {
    public:
        task(const run_inputs& in, const pulse::any_transport& of_rank) :
            diffusion_task{*in.images, *in.noise, in.task_options(of_rank.rank()), in.conditions_of(of_rank.rank())} {}
    };

private:
    rank_collectives* processes_;
};

} // namespace pulse_train
