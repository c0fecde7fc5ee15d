#pragma once

#include <cstddef>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/releases.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/plan/step_order.hpp>

namespace pulse {

namespace detail {

/// Writes the instructions of all ranks, except releases, along the global order.
class program_writer {
public:
    constexpr program_writer(const plan& planned, const step_model& model) :
        model_(&model), microbatches_(planned.microbatches), split_(planned.split_backward),
        reduces_(planned.data_degree > 1), recompute_(planned.recompute), spare_sends_(planned.spare_sends),
        code_(static_cast<std::size_t>(model.device_count())),
        recomputed_(static_cast<std::size_t>(model.stage_count() * planned.microbatches), 0),
        gradients_done_(static_cast<std::size_t>(model.stage_count()), 0),
        arriving_(static_cast<std::size_t>(model.device_count())) {}

    constexpr void add(const step_event& event) {
        if (event.is_message) {
            const int from = model_->sender(event.message);
            const int to = model_->receiver(event.message);
            emit(from, op::send{event.message, device_id{to}});
            emit(to, op::recv{event.message, device_id{from}});
            if (event.message.kind == message_kind::encoded) {
                arriving_[static_cast<std::size_t>(to)].push_back(event.message.index);
            }
            return;
        }
        if (event.task >= 0) { return add_task(event.task); }
        const int s = event.work.stage;
        const int device = model_->device_of_stage(s);
        const stage_id stage{s};
        const microbatch_id m{event.work.microbatch};
        switch (event.work.op) {
        case pass::forward:
            if (recompute_ == recomputation::skips) { restore_for(s, m); }
            emit(device, op::forward{stage, m});
            if (recompute_ != recomputation::skips) { stash_of(s, m); }
            break;
        case pass::backward_input:
            if (recompute_.is_whole(s)) { emit(device, op::recompute{stage, m}); }
            emit(device, op::backward_input{stage, m, !split_});
            break;
        case pass::backward_weight: emit(device, op::backward_weight{stage, m}); break;
        case pass::preview:
            emit(device, op::forward{stage, preview_of(m)});
            stash_of(s, preview_of(m));
            break;
        }
        if (event.work.op == (split_ ? pass::backward_weight : pass::backward_input) &&
            ++gradients_done_[static_cast<std::size_t>(s)] == microbatches_ && reduces_) {
            emit(device, op::all_reduce{stage});
        }
        keep_arrived(device);
    }
    [[nodiscard]] constexpr std::vector<program> finish() {
        std::vector<program> programs{};
        for (int d = 0; d != model_->device_count(); ++d) {
            keep_arrived(d);
            programs.push_back({d, with_releases(*model_, d, code_[static_cast<std::size_t>(d)], spare_sends_)});
            programs.back().instructions.push_back(op::optimizer_step{});
        }
        return programs;
    }

private:
    const step_model* model_;
    int microbatches_;
    bool split_;
    bool reduces_;
    stage_recomputation recompute_;
    int spare_sends_;
    std::vector<std::vector<instruction>> code_;
    std::vector<char> recomputed_;
    std::vector<int> gradients_done_;
    std::vector<std::vector<int>> arriving_; // per device: frozen tasks whose results are in flight

    constexpr void emit(int device, const instruction& what) {
        code_[static_cast<std::size_t>(device)].push_back(what);
    }
    constexpr void add_task(int number) {
        const frozen_flow& frozen = model_->frozen();
        const frozen_task& task = frozen.task(number);
        emit(task.device, op::encode{number - frozen.first_of(task.device)});
        if (frozen.makes_results(number) && frozen.reads(task.device, task.component)) {
            emit(task.device, op::keep{number});
        }
        keep_arrived(task.device);
    }
    /// A receive is posted before the work during which the message is sent, so what waits for the message comes after
    /// that work.
    constexpr void keep_arrived(int device) {
        std::vector<int>& arriving = arriving_[static_cast<std::size_t>(device)];
        for (const int number : arriving) { emit(device, op::keep{number}); }
        arriving.clear();
    }
    constexpr void stash_of(int s, microbatch_id m) {
        for (const int e : model_->edges_from(s)) {
            if (model_->is_local(e)) { emit(model_->device_of_stage(s), op::stash{edge_id{e}, m}); }
        }
    }
    /// Recomputes the stages on s's device whose skips F(s, m) reads, each once, and stashes the restored skips.
    constexpr void restore_for(int s, microbatch_id m) {
        for (const int e : model_->edges_into(s)) {
            if (!model_->is_local(e)) { continue; }
            const int source = model_->source_stage(e);
            const auto at = static_cast<std::size_t>(source * microbatches_ + index_of(m));
            if (recomputed_[at] != 0) { continue; }
            recomputed_[at] = 1;
            emit(model_->device_of_stage(source), op::recompute{stage_id{source}, m});
            stash_of(source, m);
        }
    }
};

} // namespace detail

PULSE_CONSTEXPR std::vector<program> lower(const plan& planned, const step_model& model) {
    if (planned.spare_sends < 0) { throw input_error("pulse: plan: spare_sends must not be negative"); }
    detail::program_writer writer{planned, model};
    for (const step_event& event : order_step(planned, model)) { writer.add(event); }
    return writer.finish();
}

} // namespace pulse
