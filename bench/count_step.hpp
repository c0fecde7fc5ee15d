#pragma once

#include <cstddef>
#include <cstdint>

#include <emulated/runtime.hpp>

#include "blocks_count.hpp"
#include "counted_operations.hpp"
#include "counted_work.hpp"
#include "ledger.hpp"
#include "training_step.cuh"

namespace pulse_bench {

/// fixed_task, whose loss is counted, too.
template <class Model>
class counted_task : public fixed_task<Model> {
public:
    using scalar = typename fixed_task<Model>::scalar;
    using fixed_task<Model>::loss;

    counted_task(int batch, counted_operations& math, work_counter& counter) :
        fixed_task<Model>{batch, math.stream()}, math_{math}, counter_{counter} {}

    void input(int microbatch, scalar* x) const {
        math_.begin_forward();
        fixed_task<Model>::input(microbatch, x);
    }
    void loss(int microbatch, const scalar* y, scalar* dy) {
        math_.begin_backward();
        const work_counter::scope here{counter_, {.kind = work_kind::loss, .owns_allocations = true}};
        fixed_task<Model>::loss(microbatch, y, dy);
    }

private:
    counted_operations& math_;
    work_counter& counter_;
};

/// The optimizer's step of torch.compile: foreach kernels, each for so many tensors; gradients' norms, clipping and the
/// rounded weights move what they move apart.
inline void enter_optimizer(ledger& book, double parameters) {
    book.put(party::least, work_kind::gradient_norm, 1, 4 * parameters);
    book.put(party::least, work_kind::optimizer, 1, 38 * parameters);
    book.put(party::torch, work_kind::gradient_norm, 20, 12 * parameters);
    book.put(party::torch, work_kind::optimizer, 100, 52 * parameters);
}

/// Counts one step of a model, replayed from CUDA graphs, on an emulated device that does nothing.
template <class Model>
[[nodiscard]] counted_step count_step(int batch, const card& on) {
    static constexpr auto graph = pulse::graph_of<Model>();
    work_counter counter{on};
    std::int64_t parameters = 0;
    emulated_cuda::count_on({.multiprocessors = on.multiprocessors,
                             .memory_bytes = std::size_t{1} << 40U,
                             .note = [&](const emulated_cuda::work& what) { return counter.note(what); }});
    pulse::cuda::run_ranks({pulse::cuda::current_device()}, {}, [&](pulse::cuda::thread_transport& transport) {
        const auto costs = pulse::analytic_costs(graph.view(), pulse::h200, batch, sizeof(counted_operations::scalar));
        const auto plan =
            pulse::plan_candidate(costs, {.kind = pulse::placement::sequential, .split_backward = false}).plan;
        counted_operations math{transport.stream(), counter};
        pulse::executor<Model, counted_operations> rank{math, transport, plan, costs};
        auto& owned = rank.parameters();
        parameters = static_cast<std::int64_t>(owned.values().size());
        const pulse::cuda::device_memory<float> initial{owned.values().size()}; // nobody reads it
        device_optimizer optimizer{Model::part_count, owned, {initial.data(), initial.size()}, transport.stream()};
        counted_task<Model> task{batch, math, counter};
        constexpr int steps = 3; // the second one captures, the third one replays
        for (int step = 1; step <= steps; ++step) {
            if (step == steps) {
                math.synchronize();
                counter.start();
            }
            rank.step(task);
            const work_counter::scope here{counter,
                                           {work_kind::optimizer,
                                            {{owned.gradients().data(), 4.0 * static_cast<double>(parameters), 2, 2},
                                             {owned.values().data(), 2.0 * static_cast<double>(parameters)}},
                                            0,
                                            true}};
            optimizer.step(owned, transport, step, task.loss());
        }
        math.synchronize();
        const double numbers = static_cast<double>(batch * Model::template layer_at<0>::input::elements);
        counter.book().put(party::least, work_kind::loss, 1, 6 * numbers);
        counter.book().put(party::torch, work_kind::loss, 3, 10 * numbers);
        enter_optimizer(counter.book(), static_cast<double>(parameters));
    });
    emulated_cuda::count_on({});
    return {counter.book(), parameters};
}

} // namespace pulse_bench
