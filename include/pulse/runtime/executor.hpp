#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/plan/instruction.hpp>
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
#include <pulse/runtime/prepared_program.hpp>
#include <pulse/runtime/ready_step.hpp>
#include <pulse/runtime/replica_sum.hpp>
#include <pulse/runtime/skip_cache.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/stage_runner.hpp>
#include <pulse/runtime/step_memory.hpp>
#include <pulse/runtime/trace.hpp>
#include <pulse/runtime/transport.hpp>
#include <pulse/runtime/value_watch.hpp>

namespace pulse {

/// Walks one rank's program: the same executor for any model, backend and plan, on any transport.
///
/// Everything that a step needs is taken and looked up when it is made; a step allocates nothing, only select() may.
/// All ranks must be made from the same plan and costs. The costs give sizes (their times are not read) and must be
/// those of the plan's microbatch size and the backend's scalar.
///
/// With D replicas the transport is of all P D ranks, and the rank finds its place in the grid by its number; all
/// replicas run the program of their pipeline device. Gradients of a stage are summed over the replicas from its
/// all_reduce on, in the order of replicas, beside the instructions that follow; task.optimize() finds the sums.
///
/// Of a cascade the task has two tasks, `first` and `second`, for the data and losses of each backbone, and
/// `optimize()`; parameters() are a cascade_parameters. It runs without replicas.
template <class Model, backend B>
class executor {
public:
    using scalar = typename B::scalar;
    using conditions = detail::backend_conditions<B>;
    using parameter_set = typename detail::model_parameters<Model, B>::type;
    /// Where the tensors are.
    using space = space_of<B>;

    /// Throws input_error when plan, costs, model, backend and number of ranks do not fit together.
    executor(B& math, any_transport transport, const plan& planned, const cost_table& costs,
             const executor_options& options = {}) :
        executor{math, transport, {{&planned, &costs, options.extent}}, options.layout, options.sharded_optimizer} {}
    /// With all extents of the plan, whose steps share the parameters and one room of memory: select() says which is
    /// next. Throws input_error also where they differ in more than sizes and order. Frozen tasks encode for the next
    /// step, whatever its extent; all extents have the same ones.
    executor(B& math, any_transport transport, const planned& made) :
        executor{math, transport, detail::extent_steps(made), made.layout, made.kept.sharded} {}
    executor(const executor&) = delete;
    executor& operator=(const executor&) = delete;

    /// The next steps are of the plan's extent of this number. Between steps, on every rank alike; collective where
    /// that changes it.
    void select(std::size_t extent) {
        if (now_ == steps_.at(extent).get()) { return; }
        // Where messages exchange buffers, a rank that is not done with its step may have some in this rank's room.
        try {
            if constexpr (requires { math_.synchronize(); }) { math_.synchronize(); }
            transport_.sum({});
        } catch (const std::exception& e) {
            transport_.fail(e.what());
            throw;
        }
        now_ = steps_[extent].get();
        follow_programs();
    }

    /// Runs one step with the parameters' values as they are now. The task gives the data and takes the results:
    /// - `task.timesteps(m)`: the timesteps [batch] of microbatch m as accumulators, kept until the step ends (stage 0,
    ///   if the model is conditioned or its first layer reads_timesteps);
    /// - `task.text(m)`: what a text encoder gives, as scalars, kept until the step ends (stage 0, if the model's
    ///   conditioning module reads_text);
    /// - `task.facts(m)`: numbers known of each sample as accumulators, kept until the step ends (stage 0, if the
    ///   conditioning module or the first layer reads_facts);
    /// - `task.input(m, x)`: writes the model's input [batch][input] (stage 0; again when stage 0 is recomputed);
    ///   of a plan with previews `task.input(m, x, y)`, y being what the preview of m has predicted, or null;
    /// - `task.loss(m, y, dy)`: reads the model's output, writes the gradient (last stage, once per microbatch);
    /// - `task.optimize()`: all gradients of this rank are there;
    /// - `task.encode(call)` and `task.encoded(results)` (encodes), where the plan has frozen tasks: they run a step
    ///   ahead. The first step encodes for itself before it begins.
    /// Pointers are memory of the backend's space. Where operations only start (on a device), so does the work of the
    /// task, on the same queue, and all of the step's work has started when this returns.
    ///
    /// An exception of any rank stops every rank: it is thrown here with the rank and instruction, and peers get
    /// peer_failed. What is no std::exception is thrown as it came. No other step can follow.
    template <class Task>
    void step(Task& task) {
        now_->runner.template require_input<Task>();
        std::size_t i = 0;
        try {
            math_.weights_changed();
            if (!model().frozen().empty()) { take_results(i, task); }
            for (; i != now_->prepared.size(); ++i) { run(i, task); }
            if (!watch_.on()) { now_->frozen.exchange_rooms(); }
        } catch (const peer_failed& e) {
            transport_.fail(e.what());
            throw;
        } catch (const std::exception& e) {
            const std::string text = stop_others(i, e.what());
            if (text.empty()) { throw; }
            std::throw_with_nested(error{text});
        } catch (...) {
            stop_others(i, "an exception that is no std::exception");
            throw;
        }
    }

    /// The next step is not that of the samples which were encoded: it encodes for itself, on every rank.
    void forget_results() noexcept { now_->frozen.forget_results(); }

    [[nodiscard]] parameter_set& parameters() noexcept { return parameters_; }
    [[nodiscard]] const parameter_set& parameters() const noexcept { return parameters_; }
    /// Of the extent that is selected, the first in the beginning; so is what follows.
    [[nodiscard]] const step_model& model() const noexcept { return now_->laid.model; }
    /// From the sizes of the model's type to those of the run.
    [[nodiscard]] const resizing& size() const noexcept { return now_->laid.size; }
    [[nodiscard]] const program& instructions() const noexcept { return now_->instructions(place_.device); }
    [[nodiscard]] const memory_layout& layout() const noexcept { return now_->laid.layout; }
    [[nodiscard]] const basic_step_memory<space>& memory() const noexcept { return now_->memory; }
    [[nodiscard]] const skip_cache<scalar>& skips() const noexcept { return now_->skips; }
    /// What steps of all extents have used of the memory.
    [[nodiscard]] step_bytes used() const noexcept { return detail::used_by(steps_); }

    /// Where the rank stands in the grid of pipeline devices and replicas.
    [[nodiscard]] const replica_place& place() const noexcept { return place_; }
    /// What gradients of other replicas take while they are added; beside layout() and parameters().
    [[nodiscard]] std::int64_t replica_bytes() const noexcept { return sums_.scratch_bytes(); }

    /// Records the next `instructions` instructions, from the next step on, and the sums over replicas that they start.
    void record(std::size_t instructions) {
        const std::vector<instruction>& all = this->instructions().instructions;
        const auto sums = static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](const instruction& what) {
            return std::holds_alternative<op::all_reduce>(what);
        }));
        trace_ = basic_trace<typename space::clock>{math_, instructions, (instructions / all.size() + 1) * sums};
    }
    [[nodiscard]] const basic_trace<typename space::clock>& recorded() const noexcept { return trace_; }

    /// The next steps look at every tensor of theirs, until told otherwise: to find where a number that is not finite
    /// comes from, the step that showed it is run again with the same data and weights. Its optimize() should change
    /// nothing.
    void watch_values(bool on) noexcept {
        if (on != watch_.on()) { now_->frozen.exchange_rooms(); } // the results of that step are in the other room
        watch_.turn(on);
    }
    /// What this rank found; earliest_fault tells all ranks what the first was.
    [[nodiscard]] const std::optional<value_fault>& first_fault() const noexcept { return watch_.first(); }

private:
    executor(B& math, any_transport transport, const std::vector<detail::extent_step>& of, rank_layout layout,
             bool sharded_optimizer) :
        math_{math},
        transport_{transport}, place_{detail::placed(of, transport, layout)}, laid_{detail::lay_out_steps<Model, B>(
                                                                                  of, place_.device)},
        room_{detail::layouts_of<Model, B>(laid_), transport}, parameters_{detail::model_parameters<Model, B>::owned(
                                                                   laid_.front()->model, place_.device)},
        steps_{detail::ready_steps(math, laid_, place_.device, of.front().planned->microbatch_size, room_, results_,
                                   parameters_)},
        sums_{math, transport, place_, laid_.front()->model, parameters_, sharded_optimizer}, watch_{math},
        now_{steps_.front().get()} {
        follow_programs();
    }

    void follow_programs() const { transport_.follow(model(), now_->laid.programs, place_.device); }
    /// Stops the other ranks and, with that, every use of this rank's messages. Returns what it told them.
    std::string stop_others(std::size_t i, const char* what) {
        std::string text = detail::place_of_error(transport_, i, now_->prepared.at(i), what);
        transport_.fail(text.empty() ? std::string_view{what} : std::string_view{text});
        return text;
    }

    /// Shows the task what was encoded for this step; a first step runs what the program has of frozen tasks before.
    template <class Task>
    void take_results(std::size_t& i, Task& task) {
        if constexpr (encodes<Task>) {
            if (now_->frozen.begins_without_results()) {
                transport_.follow(model(), {}, place_.device); // some of a step's transfers, in their order
                for (; i != now_->prepared.size(); ++i) {
                    if (!detail::is_of_frozen_tasks(now_->prepared.at(i))) { continue; }
                    wait(now_->prepared.prepared(i));
                    perform(i, now_->prepared.prepared(i), task);
                }
                i = 0;
                follow_programs();
                now_->frozen.have_results();
            }
            task.encoded(now_->frozen.results());
        } else {
            throw input_error{"pulse: the plan has frozen tasks, and the task of this run has no encode(call) and "
                              "encoded(results)"};
        }
    }
    template <class Task>
    void run(std::size_t i, Task& task) {
        detail::prepared_instruction& mine = now_->prepared.prepared(i);
        advance_sums();
        const bool traced = trace_.on();
        if (traced) { trace_.begin(static_cast<std::int32_t>(i)); }
        wait(mine);
        if (traced) { trace_.waited(); }
        perform(i, mine, task);
        if (traced) { trace_.end(); }
    }

    /// The rank of the world that runs a pipeline device of this replica.
    [[nodiscard]] int peer(device_id device) const noexcept { return place_.rank_of_device(index_of(device)); }

    /// What a sum over replicas calls when it is there.
    [[nodiscard]] auto when_summed() {
        return [this](stage_id stage) {
            if (!trace_.recording_reductions()) { return; }
            for (std::size_t i = 0; i != now_->prepared.size(); ++i) {
                const auto* started = std::get_if<op::all_reduce>(&now_->prepared.at(i));
                if (started == nullptr || started->stage != stage) { continue; }
                trace_.end_reduction(static_cast<std::int32_t>(i), sums_.sums());
            }
        };
    }
    bool advance_sums() { return sums_.pending() && sums_.progress(when_summed()); }
    /// As wait_recv; sums over replicas go on meanwhile.
    void wait_for(int from, message_id message) {
        while (sums_.pending() && !transport_.arrived(from, message)) {
            if (!advance_sums()) { std::this_thread::sleep_for(std::chrono::microseconds{20}); }
        }
        transport_.wait_recv(from, message);
    }

    void wait(const detail::prepared_instruction& mine) {
        for (const int other : mine.waits) {
            const auto at = static_cast<std::size_t>(other);
            const detail::prepared_instruction& posted = now_->prepared.prepared(at);
            if (const auto* in = std::get_if<op::recv>(&now_->prepared.at(at))) {
                wait_for(peer(in->peer), in->message);
            } else if (const auto* out = std::get_if<op::send>(&now_->prepared.at(at))) {
                transport_.wait_send(peer(out->peer), out->message);
            }
            for (std::size_t part = 0; part != posted.parts.size(); ++part) {
                now_->memory.exchanged(posted.part_places[part], posted.parts[part].data);
            }
        }
    }

    template <class Task>
    void perform(std::size_t i, detail::prepared_instruction& mine, Task& task) {
        for (const int place : mine.acquired) { now_->memory.acquire(place); }
        std::visit([&](const auto& what) { perform(i, what, mine, task); }, now_->prepared.at(i));
    }

    /// Runs what an instruction computes, as the space does it.
    template <class Work>
    void compute(std::size_t i, const detail::prepared_instruction& mine, const conditions& known, Work&& work) {
        const auto addresses = [&](auto&& visit) {
            for (const auto& entry : mine.places) {
                visit(static_cast<const void*>(now_->memory.address(entry.second)));
            }
            for (const void* const address :
                 {static_cast<const void*>(known.timesteps), static_cast<const void*>(known.text),
                  static_cast<const void*>(known.facts)}) {
                visit(address);
            }
        };
        now_->sections.run(i, addresses, work);
    }
    /// Shows the tensors of a pass to the watch.
    [[nodiscard]] auto looking(stage_id stage, microbatch_id m) {
        return [this, stage, m](value_fault::place where, int layer, const scalar* values, std::int64_t elements) {
            watch_.look({where, layer, index_of(stage), data_of(m)}, values, elements);
        };
    }
    template <class Task>
    void forward(std::size_t i, stage_id stage, microbatch_id m, const detail::prepared_instruction& mine, Task& task,
                 bool again) {
        now_->runner.feed(stage, m, mine, task);
        const conditions known = now_->runner.conditions_for(stage, m, task);
        if (watch_.on()) { return now_->runner.forward(stage, m, mine, now_->skips, known, again, looking(stage, m)); }
        compute(i, mine, known, [&] { now_->runner.forward(stage, m, mine, now_->skips, known, again); });
    }

    template <class Task>
    void perform(std::size_t i, const op::forward& f, const detail::prepared_instruction& mine, Task& task) {
        forward(i, f.stage, f.microbatch, mine, task, false);
    }
    template <class Task>
    void perform(std::size_t i, const op::recompute& f, const detail::prepared_instruction& mine, Task& task) {
        forward(i, f.stage, f.microbatch, mine, task, true);
    }
    template <class Task>
    void perform(std::size_t i, const op::backward_input& b, const detail::prepared_instruction& mine, Task& task) {
        now_->runner.loss(b.stage, b.microbatch, mine, task);
        const conditions known = now_->runner.conditions_for(b.stage, b.microbatch, task);
        if (watch_.on()) {
            return now_->runner.backward_input(b.stage, b.microbatch, b.with_weight, mine, now_->skips, known,
                                               looking(b.stage, b.microbatch));
        }
        compute(i, mine, known,
                [&] { now_->runner.backward_input(b.stage, b.microbatch, b.with_weight, mine, now_->skips, known); });
    }
    template <class Task>
    void perform(std::size_t i, const op::backward_weight& w, const detail::prepared_instruction& mine, Task& task) {
        const conditions known = now_->runner.conditions_for(w.stage, w.microbatch, task);
        compute(i, mine, known, [&] { now_->runner.backward_weight(w.stage, w.microbatch, mine, now_->skips, known); });
    }
    template <class Task>
    void perform(std::size_t, const op::send& out, detail::prepared_instruction& mine, Task&) {
        aim(mine);
        transport_.post_send(peer(out.peer), out.message, mine.parts);
    }
    template <class Task>
    void perform(std::size_t, const op::recv& in, detail::prepared_instruction& mine, Task&) {
        aim(mine);
        transport_.post_recv(peer(in.peer), in.message, mine.parts);
    }
    template <class Task>
    void perform(std::size_t, const op::stash& s, const detail::prepared_instruction& mine, Task&) {
        const buffer_id tensor{buffer_kind::activation, model().edge(index_of(s.edge)).from, s.microbatch};
        now_->skips.stash(s.edge, s.microbatch, now_->runner.tensor(mine, tensor));
    }
    template <class Task>
    void perform(std::size_t, const op::encode& e, const detail::prepared_instruction& mine, Task& task) {
        if constexpr (encodes<Task>) { now_->frozen.encode(e, mine, task); }
    }
    template <class Task>
    void perform(std::size_t, const op::keep& k, const detail::prepared_instruction& mine, Task&) {
        now_->frozen.keep(k, mine, math_);
    }
    template <class Task>
    void perform(std::size_t, const op::release& r, const detail::prepared_instruction& mine, Task&) {
        if (r.buffer.kind == buffer_kind::activation) {
            for (const int e : model().edges_from(model().stage_of_layer(r.buffer.index))) {
                if (model().edge(e).from == r.buffer.index) { now_->skips.drop(edge_id{e}, r.buffer.microbatch); }
            }
        }
        now_->memory.release(mine.place_of(r.buffer));
    }
    template <class Task>
    void perform(std::size_t i, const op::all_reduce& sum, const detail::prepared_instruction&, Task&) {
        if (trace_.on()) { trace_.begin_reduction(static_cast<std::int32_t>(i)); }
        sums_.start(sum.stage, when_summed());
    }
    template <class Task>
    void perform(std::size_t, const op::optimizer_step&, const detail::prepared_instruction&, Task& task) {
        sums_.finish(when_summed());
        task.optimize();
    }

    void aim(detail::prepared_instruction& mine) const {
        for (std::size_t part = 0; part != mine.parts.size(); ++part) {
            mine.parts[part].data = now_->memory.address(mine.part_places[part]);
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
    detail::replica_sum<B> sums_;
    basic_trace<typename space::clock> trace_;
    value_watch<B> watch_;
    detail::ready_step<Model, B>* now_; ///< of the extent that is selected
};

} // namespace pulse
