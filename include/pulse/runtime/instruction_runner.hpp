#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/ids.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/encoding.hpp>
#include <pulse/runtime/forward_passes.hpp>
#include <pulse/runtime/frozen_runner.hpp>
#include <pulse/runtime/nan_trap.hpp>
#include <pulse/runtime/prepared_program.hpp>
#include <pulse/runtime/ready_step.hpp>
#include <pulse/runtime/replica_sum.hpp>
#include <pulse/runtime/skip_cache.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/stage_runner.hpp>
#include <pulse/runtime/step_memory.hpp>
#include <pulse/runtime/trace.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::detail {

/// T, a task of the executor, updates a stage's weights as soon as the stage's gradients are complete.
template <class T>
concept updates_stages = requires(T& task, stage_id stage) {
    task.update(stage);
};

/// Runs the instructions of a rank's program in order, each after the transfers that it waits for.
template <class Model, backend B>
class instruction_runner {
public:
    using scalar = typename B::scalar;
    using conditions = backend_conditions<B>;
    using space = space_of<B>;
    using ready = ready_step<Model, B>;

    template <class Parameters>
    instruction_runner(B& math, any_transport transport, const replica_place& place, ready& first,
                       Parameters& parameters, bool sharded_optimizer) :
        math_{math},
        transport_{transport}, place_{place},
        sums_{math, transport, place, first.laid.model, parameters, sharded_optimizer}, watch_{math}, now_{&first} {
        summed_.reserve(static_cast<std::size_t>(first.laid.model.stage_count()));
    }

    /// Makes later calls run the instructions of this step.
    void select(ready& step) noexcept { now_ = &step; }
    [[nodiscard]] ready& now() const noexcept { return *now_; }
    /// Bytes of other replicas' gradients while they are summed.
    [[nodiscard]] std::int64_t replica_bytes() const noexcept { return sums_.scratch_bytes(); }
    /// Records the next `instructions` instructions of a program that has `all`.
    void record(std::size_t instructions, const std::vector<instruction>& all) {
        const auto sums = static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](const instruction& what) {
            return std::holds_alternative<op::all_reduce>(what);
        }));
        trace_ = basic_trace<typename space::clock>{math_, instructions, (instructions / all.size() + 1) * sums};
    }
    [[nodiscard]] const basic_trace<typename space::clock>& trace() const noexcept { return trace_; }
    [[nodiscard]] nan_trap<B>& watch() noexcept { return watch_; }
    [[nodiscard]] const nan_trap<B>& watch() const noexcept { return watch_; }

    template <class Task>
    void run(std::size_t i, Task& task) {
        prepared_instruction& mine = now_->prepared.prepared(i);
        advance_sums();
        const bool traced = trace_.on();
        if (traced) { trace_.begin(static_cast<std::int32_t>(i)); }
        wait(mine);
        if (traced) { trace_.waited(); }
        acquire(mine);
        perform(i, mine, task);
        if (traced) { trace_.end(); }
    }
    /// Runs an instruction of frozen tasks outside its step.
    template <class Task>
    void run_alone(std::size_t i, Task& task) {
        prepared_instruction& mine = now_->prepared.prepared(i);
        wait(mine);
        acquire(mine);
        perform(i, mine, task);
    }
    /// Runs the part of an instruction that an evaluation needs.
    template <class Task>
    void evaluate(std::size_t i, Task& task) {
        prepared_instruction& mine = now_->prepared.prepared(i);
        wait(mine, true);
        acquire(mine);
        if (!is_of_forward_passes(now_->prepared.at(i), model())) { return; }
        if (const auto* b = std::get_if<op::backward_input>(&now_->prepared.at(i))) {
            now_->runner.loss(b->stage, b->microbatch, mine, task);
        } else {
            perform(i, mine, task);
        }
    }

private:
    [[nodiscard]] const step_model& model() const noexcept { return now_->laid.model; }
    /// The world rank that runs a pipeline device of this replica.
    [[nodiscard]] int peer(device_id device) const noexcept { return place_.rank_of_device(index_of(device)); }

    /// The callback for a completed sum over replicas.
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
    /// Like wait_recv, but sums over replicas progress meanwhile.
    void wait_for(int from, message_id message) {
        while (sums_.pending() && !transport_.arrived(from, message)) {
            if (!advance_sums()) { std::this_thread::sleep_for(std::chrono::microseconds{20}); }
        }
        transport_.wait_recv(from, message);
    }

    /// Waits for transfers; an evaluation waits only for those that it runs.
    void wait(const prepared_instruction& mine, bool evaluates = false) {
        for (const int other : mine.waits) {
            const auto at = static_cast<std::size_t>(other);
            if (evaluates && !is_of_forward_passes(now_->prepared.at(at), model())) { continue; }
            const prepared_instruction& posted = now_->prepared.prepared(at);
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

    void acquire(const prepared_instruction& mine) {
        for (const int place : mine.acquired) { now_->memory.acquire(place); }
    }
    template <class Task>
    void perform(std::size_t i, prepared_instruction& mine, Task& task) {
        std::visit([&](const auto& what) { perform(i, what, mine, task); }, now_->prepared.at(i));
    }

    /// Runs an instruction's computation through the space's sections.
    template <class Work>
    void compute(std::size_t i, const prepared_instruction& mine, const conditions& known, Work&& work) {
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
    /// Reports the tensors of a pass to the watch.
    [[nodiscard]] auto looking(stage_id stage, microbatch_id m) {
        return [this, stage, m](value_fault::place where, int layer, const scalar* values, std::int64_t elements) {
            watch_.look({where, layer, index_of(stage), data_of(m)}, values, elements);
        };
    }
    template <class Task>
    void forward(std::size_t i, stage_id stage, microbatch_id m, const prepared_instruction& mine, Task& task,
                 bool again) {
        now_->runner.feed(stage, m, mine, task);
        const conditions known = now_->runner.conditions_for(stage, m, task);
        if (watch_.on()) { return now_->runner.forward(stage, m, mine, now_->skips, known, again, looking(stage, m)); }
        compute(i, mine, known, [&] { now_->runner.forward(stage, m, mine, now_->skips, known, again); });
    }

    template <class Task>
    void perform(std::size_t i, const op::forward& f, const prepared_instruction& mine, Task& task) {
        forward(i, f.stage, f.microbatch, mine, task, false);
    }
    template <class Task>
    void perform(std::size_t i, const op::recompute& f, const prepared_instruction& mine, Task& task) {
        forward(i, f.stage, f.microbatch, mine, task, true);
    }
    template <class Task>
    void perform(std::size_t i, const op::backward_input& b, const prepared_instruction& mine, Task& task) {
        // Its gradients may take memory of gradients that still wait for their update.
        if (mine.first_of_input) { update_summed(task); }
        now_->runner.loss(b.stage, b.microbatch, mine, task);
        const conditions known = now_->runner.conditions_for(b.stage, b.microbatch, task);
        if (watch_.on()) {
            now_->runner.backward_input(b.stage, b.microbatch, b.with_weight, mine, now_->skips, known,
                                        looking(b.stage, b.microbatch));
        } else {
            compute(i, mine, known, [&] {
                now_->runner.backward_input(b.stage, b.microbatch, b.with_weight, mine, now_->skips, known);
            });
        }
        if (mine.last_of_weight) { update_alone(b.stage, task); }
    }
    template <class Task>
    void perform(std::size_t i, const op::backward_weight& w, const prepared_instruction& mine, Task& task) {
        const conditions known = now_->runner.conditions_for(w.stage, w.microbatch, task);
        compute(i, mine, known, [&] { now_->runner.backward_weight(w.stage, w.microbatch, mine, now_->skips, known); });
        if (mine.last_of_weight) { update_alone(w.stage, task); }
    }
    template <class Task>
    void perform(std::size_t, const op::send& out, prepared_instruction& mine, Task&) {
        aim(mine);
        transport_.post_send(peer(out.peer), out.message, mine.parts);
    }
    template <class Task>
    void perform(std::size_t, const op::recv& in, prepared_instruction& mine, Task&) {
        aim(mine);
        transport_.post_recv(peer(in.peer), in.message, mine.parts);
    }
    template <class Task>
    void perform(std::size_t, const op::stash& s, const prepared_instruction& mine, Task&) {
        const buffer_id tensor{buffer_kind::activation, model().edge(index_of(s.edge)).from, s.microbatch};
        now_->skips.stash(s.edge, s.microbatch, now_->runner.tensor(mine, tensor));
    }
    template <class Task>
    void perform(std::size_t, const op::encode& e, const prepared_instruction& mine, Task& task) {
        if constexpr (encodes<Task>) { now_->frozen.encode(e, mine, task); }
    }
    template <class Task>
    void perform(std::size_t, const op::keep& k, const prepared_instruction& mine, Task&) {
        now_->frozen.keep(k, mine, math_);
    }
    template <class Task>
    void perform(std::size_t, const op::release& r, const prepared_instruction& mine, Task&) {
        if (r.buffer.kind == buffer_kind::activation) {
            for (const int e : model().edges_from(model().stage_of_layer(r.buffer.index))) {
                if (model().edge(e).from == r.buffer.index) { now_->skips.drop(edge_id{e}, r.buffer.microbatch); }
            }
        }
        now_->memory.release(mine.place_of(r.buffer));
    }
    template <class Task>
    void perform(std::size_t i, const op::all_reduce& sum, const prepared_instruction&, Task&) {
        if (trace_.on()) { trace_.begin_reduction(static_cast<std::int32_t>(i)); }
        sums_.start(sum.stage, when_summed());
        if (model().gradient_release()) { summed_.push_back(sum.stage); }
    }
    template <class Task>
    void perform(std::size_t, const op::optimizer_step&, const prepared_instruction&, Task& task) {
        sums_.finish(when_summed());
        update_summed(task);
        task.optimize();
    }

    /// If gradients are released: updates a stage that has no replicas.
    template <class Task>
    void update_alone(stage_id stage, Task& task) {
        if constexpr (updates_stages<Task>) {
            if (model().gradient_release() && place_.replicas() < 2) { task.update(stage); }
        }
    }
    /// The same for stages whose sums over replicas have been started, as late as their gradients allow.
    template <class Task>
    void update_summed(Task& task) {
        if constexpr (updates_stages<Task>) {
            if (summed_.empty()) { return; }
            sums_.finish(when_summed());
            for (const stage_id stage : summed_) { task.update(stage); }
            summed_.clear();
        }
    }

    void aim(prepared_instruction& mine) const {
        for (std::size_t part = 0; part != mine.parts.size(); ++part) {
            mine.parts[part].data = now_->memory.address(mine.part_places[part]);
        }
    }

    B& math_;
    any_transport transport_;
    replica_place place_;
    replica_sum<B> sums_;
    basic_trace<typename space::clock> trace_{};
    nan_trap<B> watch_;
    std::vector<stage_id> summed_{}; ///< stages that wait for their sums before their gradients are released
    ready* now_;
};

} // namespace pulse::detail
