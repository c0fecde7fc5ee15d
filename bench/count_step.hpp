#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <emulated/runtime.hpp>

#include "blocks_count.hpp"
#include "counted_operations.hpp"
#include "counted_work.hpp"
#include "ledger.hpp"
#include "training_step.cuh"

namespace pulse_bench {

/// A fixed_task that also counts its loss.
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
        const auto& target = fixed_task<Model>::target();
        const double bytes = 2.0 * static_cast<double>(target.size());
        // 65 doubles: the loss and the sums of its blocks
        const work_counter::scope here{
            counter_,
            {work_kind::loss, {{y, bytes}, {target.data(), bytes}, {dy, bytes}, {loss(), sizeof(double) * 65}}}};
        fixed_task<Model>::loss(microbatch, y, dy);
    }

private:
    counted_operations& math_;
    work_counter& counter_;
};

/// Enters the optimizer's step, the least and that of blocks_peer.py with masters in float, where widening gradients,
/// norms, clipping, fused AdamW, the average and rounding the weights are one foreach each.
inline void enter_optimizer(ledger& book, double parameters, double tensors) {
    /// A launch takes 320 pieces of 65536 parameters, from at most `most_tensors` tensors.
    const auto launches = [&](double most_tensors) {
        return std::ceil(std::max(parameters / (320 * 65536), tensors / most_tensors));
    };
    const double one_list = launches(110);
    const double two_lists = launches(64);
    const double four_lists = launches(36);
    book.put(party::least, work_kind::gradient_norm, 1, 4 * parameters);
    book.put(party::least, work_kind::optimizer, 1, 38 * parameters);
    book.put(party::torch, work_kind::gradient_norm, 2 * one_list, 12 * parameters);
    book.put(party::torch, work_kind::optimizer, 3 * two_lists + four_lists, 52 * parameters);
}

/// Counts one step of a model, replayed from CUDA graphs, on an emulated device that computes nothing.
template <class Model>
[[nodiscard]] counted_step count_step(int batch, const card& on) {
    static constexpr auto graph = pulse::graph_of<Model>();
    work_counter counter{on};
    std::int64_t parameters = 0;
    const emulated_cuda::counting counted{
        {.multiprocessors = on.multiprocessors,
         .memory_bytes = std::size_t{1} << 40U,
         .note = [&](const emulated_cuda::work& what) { return counter.note(what); }}};
    pulse::cuda::run_ranks({pulse::cuda::current_device()}, {}, [&](pulse::cuda::thread_transport& transport) {
        const auto costs = pulse::analytic_costs(graph.view(), pulse::h200, batch, sizeof(counted_operations::scalar));
        const auto plan =
            pulse::plan_candidate(costs, {.kind = pulse::placement::sequential, .split_backward = false}).plan;
        counted_operations math{transport.stream(), counter};
        pulse::executor<Model, counted_operations> rank{math, transport, plan, costs};
        auto& owned = rank.parameters();
        parameters = static_cast<std::int64_t>(owned.values().size());
        device_optimizer optimizer{Model::part_count, owned, {}, transport.stream()};
        counted_task<Model> task{batch, math, counter};
        constexpr int steps = 3; // the second one captures, the third one replays
        for (int step = 1; step <= steps; ++step) {
            if (step == steps) {
                math.synchronize();
                counter.start();
            }
            rank.step(task);
            const work_counter::scope here{
                counter,
                {.kind = work_kind::optimizer,
                 .operands = {{owned.gradients().data(), 4.0 * static_cast<double>(parameters)},
                              {owned.values().data(), 2.0 * static_cast<double>(parameters)}},
                 .owns_allocations = true}};
            optimizer.step(owned, transport, step, task.loss());
        }
        math.synchronize();
        const double numbers = static_cast<double>(batch * Model::template layer_at<0>::input::elements);
        counter.book().put(party::least, work_kind::loss, 1, 6 * numbers);
        counter.book().put(party::torch, work_kind::loss, 3, 10 * numbers);
        std::size_t tensors = 0;
        for (const auto& block : owned.blocks()) { tensors += pulse::parameters_of<Model>(block.layer).size(); }
        enter_optimizer(counter.book(), static_cast<double>(parameters), static_cast<double>(tensors));
    });
    return {counter.finished(), parameters, counter.runtime_calls()};
}

} // namespace pulse_bench
