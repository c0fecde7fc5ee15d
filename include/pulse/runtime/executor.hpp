#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/cascade_runner.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/encoding.hpp>
#include <pulse/runtime/executor_options.hpp>
#include <pulse/runtime/extent_step.hpp>
#include <pulse/runtime/frozen_runner.hpp>
#include <pulse/runtime/instruction_runner.hpp>
#include <pulse/runtime/nan_trap.hpp>
#include <pulse/runtime/prepared_program.hpp>
#include <pulse/runtime/ready_step.hpp>
#include <pulse/runtime/skip_cache.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/stage_runner.hpp>
#include <pulse/runtime/step_memory.hpp>
#include <pulse/runtime/trace.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse {

/// Executes one rank's program: the same executor for any model, backend, plan and transport.
///
/// The constructor allocates and looks up everything that a step needs; a step allocates nothing, only select() may.
/// All ranks must be made from the same plan and costs. The costs provide sizes (their times are not read) and must
/// match the plan's microbatch size and the backend's scalar.
///
/// With D replicas the transport connects all P D ranks, and a rank finds its place in the grid by its number; all
/// replicas run the program of their pipeline device. From a stage's all_reduce on, its gradients are summed over the
/// replicas, always in the same order of replicas (replica_sum), while the following instructions run; task.optimize()
/// sees the sums.
///
/// For a cascade, the task has two tasks, `first` and `second`, for the data and losses of each backbone, and
/// `optimize()`; parameters() are a cascade_parameters. A cascade runs without replicas.
template <class Model, backend B>
class executor {
public:
    using scalar = typename B::scalar;
    using conditions = detail::backend_conditions<B>;
    using parameter_set = typename detail::model_parameters<Model, B>::type;
    /// Where the tensors are.
    using space = space_of<B>;

    /// Throws input_error if plan, costs, model, backend and number of ranks do not fit together.
    executor(B& math, any_transport transport, const plan& planned, const cost_table& costs,
             const executor_options& options = {}) :
        executor{math, transport, {{&planned, &costs, options.extent}}, options.layout, options.sharded_optimizer} {}
    /// For all extents of the plan; their steps share the parameters and one block of memory, and select() chooses the
    /// next one. Throws input_error also if the extents differ in more than sizes and order. Frozen tasks encode for
    /// the next step, whatever its extent; all extents have the same frozen tasks.
    executor(B& math, any_transport transport, const planned& made) :
        executor{math, transport, detail::extent_steps(made), made.layout, made.kept.sharded} {}
    executor(const executor&) = delete;
    executor& operator=(const executor&) = delete;

    /// Makes the next steps use the plan's extent with this number. Call it between steps, on every rank alike; it is
    /// collective if the extent changes.
    void select(std::size_t extent) {
        if (&now() == steps_.at(extent).get()) { return; }
        // Where messages exchange buffers, a rank that is still in its step may hold some of this rank's memory.
        try {
            if constexpr (requires { math_.synchronize(); }) { math_.synchronize(); }
            transport_.sum({});
        } catch (const std::exception& e) {
            transport_.fail(e.what());
            throw;
        }
        runner_.select(*steps_[extent]);
        follow_programs();
    }

    /// Runs one step with the current parameter values. The task provides the data and takes the results:
    /// - `task.timesteps(m)`: the timesteps [batch] of microbatch m as accumulators, kept until the step ends (stage 0,
    ///   if the model is conditioned or its first layer reads_timesteps);
    /// - `task.text(m)`: a text encoder's output as scalars, kept until the step ends (stage 0, if the model's
    ///   conditioning module reads_text);
    /// - `task.facts(m)`: numbers known of each sample as accumulators, kept until the step ends (stage 0, if the
    ///   conditioning module or the first layer reads_facts);
    /// - `task.input(m, x)`: writes the model's input [batch][input] (stage 0; again when stage 0 is recomputed); in a
    ///   plan with previews `task.input(m, x, y)`, where y is the prediction of m's preview, or null;
    /// - `task.loss(m, y, dy)`: reads the model's output, writes the gradient (last stage, once per microbatch);
    /// - `task.optimize()`: called when all gradients of this rank are complete;
    /// - `task.update(stage)` (detail::updates_stages), if the plan releases gradients: called when those of this stage
    ///   are complete and the step no longer reads its weights; by optimize() they may be gone;
    /// - `task.encode(call)` and `task.encoded(results)` (encodes), if the plan has frozen tasks: they run a step
    ///   ahead. The first step encodes for itself before it begins.
    /// Pointers are memory of the backend's space. Where operations are only enqueued (on a device), so is the work of
    /// the task, on the same queue, and all of the step's work has been enqueued when this returns.
    ///
    /// An exception on any rank stops every rank: it is thrown here with the rank and instruction, and peers get
    /// peer_failed. An exception that is no std::exception is rethrown unchanged. No other step can follow.
    template <class Task>
    void step(Task& task) {
        if (model().gradient_release() && !detail::updates_stages<Task>) {
            throw input_error{"pulse: the plan releases gradients, so the task of this run must have update(stage)"};
        }
        together<Task>([&](std::size_t& i) {
            if (!model().frozen().empty()) { take_results(i, task); }
            for (; i != now().prepared.size(); ++i) { runner_.run(i, task); }
            if (!runner_.watch().on()) { now().frozen.exchange_rooms(); }
        });
    }

    /// Runs the forward passes of a step, between steps, without changing anything that steps read. Calls the task's
    /// input, timesteps, text, facts and loss as step() does; the loss gradient is ignored. Nothing is encoded. Throws
    /// as step() does.
    template <class Task>
    void evaluate(Task& task) {
        together<Task>([&](std::size_t& i) {
            transport_.follow(nullptr); // some of a step's transfers, in their order
            for (; i != now().prepared.size(); ++i) { runner_.evaluate(i, task); }
            follow_programs();
        });
    }

    /// Call on every rank if the next step uses other samples than those encoded: it then encodes for itself.
    void forget_results() noexcept { now().frozen.forget_results(); }

    [[nodiscard]] parameter_set& parameters() noexcept { return parameters_; }
    [[nodiscard]] const parameter_set& parameters() const noexcept { return parameters_; }
    /// These describe the selected extent, initially the first.
    [[nodiscard]] const step_model& model() const noexcept { return now().laid.model; }
    /// From the sizes of the model's type to those of the run.
    [[nodiscard]] const resizing& size() const noexcept { return now().laid.size; }
    [[nodiscard]] const program& instructions() const noexcept { return now().instructions(place_.device); }
    [[nodiscard]] const memory_layout& layout() const noexcept { return now().laid.layout; }
    [[nodiscard]] const basic_step_memory<space>& memory() const noexcept { return now().memory; }
    [[nodiscard]] const skip_cache<scalar>& skips() const noexcept { return now().skips; }
    /// Bytes of the memory that steps of all extents have used.
    [[nodiscard]] step_bytes used() const noexcept { return detail::used_by(steps_); }

    /// The rank's place in the grid of pipeline devices and replicas.
    [[nodiscard]] const replica_place& place() const noexcept { return place_; }
    /// Bytes of other replicas' gradients while they are summed; not in layout() or parameters().
    [[nodiscard]] std::int64_t replica_bytes() const noexcept { return runner_.replica_bytes(); }

    /// Records the next `instructions` instructions, from the next step on, and the replica sums that they start.
    void record(std::size_t instructions) { runner_.record(instructions, this->instructions().instructions); }
    [[nodiscard]] const basic_trace<typename space::clock>& recorded() const noexcept { return runner_.trace(); }

    /// Makes the next steps check all their tensors, until turned off. To find the source of a non-finite number, run
    /// the step that showed it again with the same data and weights; its optimize() should change nothing.
    void watch_values(bool on) noexcept {
        // The repeated step's encoded results are in the other room.
        if (on != runner_.watch().on()) { now().frozen.exchange_rooms(); }
        runner_.watch().turn(on);
    }
    /// What this rank found; earliest_fault tells all ranks which fault came first.
    [[nodiscard]] const std::optional<value_fault>& first_fault() const noexcept { return runner_.watch().first(); }

private:
    executor(B& math, any_transport transport, const std::vector<detail::extent_step>& of, rank_layout layout,
             bool sharded_optimizer) :
        math_{math},
        transport_{transport}, place_{detail::placed(of, transport, layout)},
        laid_{detail::lay_out_steps<Model, B>(of, place_.device)}, room_{detail::layouts_of<Model, B>(laid_),
                                                                         transport},
        parameters_{detail::model_parameters<Model, B>::owned(laid_.front()->model, place_.device,
                                                              detail::gradients_of<Model, B>(laid_, place_.device))},
        steps_{detail::ready_steps(math, transport, laid_, place_.device, of.front().planned->microbatch_size, room_,
                                   results_, parameters_)},
        runner_{math, transport, place_, *steps_.front(), parameters_, sharded_optimizer} {
        follow_programs();
    }

    /// Runs `body(i)`, which all ranks run at once and which keeps i at the current instruction.
    template <class Task, class Body>
    void together(const Body& body) {
        now().runner.template require_input<Task>();
        std::size_t i = 0;
        try {
            math_.weights_changed();
            body(i);
        } catch (const peer_failed& e) {
            transport_.fail(e.what());
            throw;
        } catch (const std::exception& e) {
            const std::string text = stop_others(i, e.what());
            if (text.empty()) { throw; }
            std::throw_with_nested(error{text});
        } catch (...) {
            stop_others(i, "an exception that is not a std::exception");
            throw;
        }
    }

    [[nodiscard]] detail::ready_step<Model, B>& now() const noexcept { return runner_.now(); }
    void follow_programs() const { transport_.follow(now().transfers.get()); }
    /// Stops the other ranks, and with them every use of this rank's messages. Returns the text sent to them.
    std::string stop_others(std::size_t i, const char* what) {
        std::string text = detail::place_of_error(transport_, i, now().prepared.at(i), what);
        transport_.fail(text.empty() ? std::string_view{what} : std::string_view{text});
        return text;
    }

    /// Gives the task what was encoded for this step; a first step runs its program's frozen tasks beforehand.
    template <class Task>
    void take_results(std::size_t& i, Task& task) {
        if constexpr (encodes<Task>) {
            if (now().frozen.begins_without_results()) {
                transport_.follow(nullptr); // some of a step's transfers, in their order
                for (; i != now().prepared.size(); ++i) {
                    if (!detail::is_of_frozen_tasks(now().prepared.at(i))) { continue; }
                    runner_.run_alone(i, task);
                }
                i = 0;
                follow_programs();
                now().frozen.have_results();
            }
            task.encoded(now().frozen.results());
        } else {
            throw input_error{"pulse: the plan has frozen tasks, so the task of this run must have encode(call) and "
                              "encoded(results)"};
        }
    }
    B& math_;
    any_transport transport_;
    replica_place place_;
    detail::laid_steps<Model, B> laid_; ///< by extent
    step_room<space> room_;
    detail::frozen_rooms results_{};
    parameter_set parameters_;
    std::vector<std::unique_ptr<detail::ready_step<Model, B>>> steps_; ///< by extent
    detail::instruction_runner<Model, B> runner_;
};

} // namespace pulse
