#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/ids.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/plan/access.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/rendezvous.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/plan/verdict.hpp>
#include <pulse/plan/well_formed.hpp>

namespace pulse {

namespace detail {

/// Walks one rank's program and tracks buffer lifetimes and the order of passes.
class rank_check {
public:
    constexpr rank_check(const plan& planned, const step_model& model, const program& of_rank) :
        planned_(planned), model_(model), program_(of_rank) {}

    /// The first violation, or none; live_peak_bytes() is exact afterwards.
    [[nodiscard]] constexpr verdict run() {
        for (at_ = 0; at_ != program_.instructions.size() && !why_; ++at_) {
            const instruction& what = program_.instructions[at_];
            if (auto ill = ill_formed(planned_, model_, program_.device, what)) { fail(*ill); }
            if (stepped_) { fail("comes after optimizer_step"); }
            if (!why_) { follow_order(what); }
            if (!why_) { follow_buffers(what); }
        }
        if (!why_) { require_complete(); }
        return why_;
    }
    [[nodiscard]] constexpr std::int64_t live_peak_bytes() const noexcept { return peak_; }

private:
    /// Inserts a value into a sorted vector unless it is there; std::set does not work in constant evaluation.
    template <class T>
    static constexpr bool insert(std::vector<T>& sorted, const std::type_identity_t<T>& value) {
        const auto at = std::lower_bound(sorted.begin(), sorted.end(), value);
        if (at != sorted.end() && *at == value) { return false; }
        sorted.insert(at, value);
        return true;
    }
    template <class T>
    static constexpr bool contains(const std::vector<T>& sorted, const std::type_identity_t<T>& value) {
        return std::binary_search(sorted.begin(), sorted.end(), value);
    }

    const plan& planned_;
    const step_model& model_;
    const program& program_;
    std::size_t at_{};
    verdict why_{};
    std::vector<buffer_id> alive_{};
    std::vector<std::pair<bool, message_id>> messages_{}; // (sent, message)
    std::vector<std::pair<edge_id, microbatch_id>> stashed_{};
    std::vector<op::recompute> recomputed_{};
    std::vector<stage_id> reduced_{};
    std::vector<int> gradients_left_{};
    std::size_t passes_{};
    int tasks_{};
    std::vector<int> kept_{};
    std::int64_t live_{};
    std::int64_t peak_{};
    bool stepped_{};

    void fail(std::string_view what) {
        if (!why_) { why_ = instruction_place(program_, at_) + ": " + std::string{what}; }
    }
    void fail_at_end(const std::string& what) {
        why_ = "rank " + std::to_string(program_.device) + ", at its end: " + what;
    }

    [[nodiscard]] constexpr const std::vector<timed_pass>& scheduled() const {
        return planned_.order.devices[static_cast<std::size_t>(program_.device)];
    }
    constexpr void next_pass(pass kind, stage_id stage, microbatch_id m) {
        if (passes_ == scheduled().size()) { return fail("the schedule has no pass left here"); }
        const timed_pass& due = scheduled()[passes_++];
        if (due.op != kind || due.stage != index_of(stage) || due.microbatch != data_of(m)) {
            fail("the schedule has " + to_text(due.op, due.stage, due.microbatch) + " here");
        }
        if (kind == (planned_.split_backward ? pass::backward_weight : pass::backward_input)) {
            gradients_left_.resize(static_cast<std::size_t>(model_.stage_count()), planned_.microbatches);
            --gradients_left_[static_cast<std::size_t>(index_of(stage))];
        }
    }
    [[nodiscard]] constexpr bool has_gradients(stage_id stage) const {
        return !gradients_left_.empty() && gradients_left_[static_cast<std::size_t>(index_of(stage))] == 0;
    }
    /// Requires the passes of the schedule in its order, and everything else at most once.
    constexpr void follow_order(const instruction& what) {
        if (const auto* f = std::get_if<op::forward>(&what)) {
            next_pass(is_preview(f->microbatch) ? pass::preview : pass::forward, f->stage, f->microbatch);
        } else if (const auto* b = std::get_if<op::backward_input>(&what)) {
            next_pass(pass::backward_input, b->stage, b->microbatch);
        } else if (const auto* w = std::get_if<op::backward_weight>(&what)) {
            next_pass(pass::backward_weight, w->stage, w->microbatch);
        } else if (const auto* r = std::get_if<op::recompute>(&what)) {
            if (!insert(recomputed_, *r)) { fail("happens twice"); }
        } else if (const auto* s = std::get_if<op::send>(&what)) {
            if (!insert(messages_, {true, s->message})) { fail("the message is sent twice"); }
        } else if (const auto* v = std::get_if<op::recv>(&what)) {
            if (!insert(messages_, {false, v->message})) { fail("the message is received twice"); }
        } else if (const auto* k = std::get_if<op::stash>(&what)) {
            if (!insert(stashed_, {k->edge, k->microbatch})) { fail("the edge is stashed twice"); }
        } else if (const auto* e = std::get_if<op::encode>(&what)) {
            if (e->task != tasks_++) {
                fail("the plan expects task " + std::to_string(tasks_ - 1) + " of the device here");
            }
        } else if (const auto* p = std::get_if<op::keep>(&what)) {
            if (!insert(kept_, p->task)) { fail("the result is kept twice"); }
        } else if (const auto* a = std::get_if<op::all_reduce>(&what)) {
            if (!has_gradients(a->stage)) { fail("the stage still has microbatches to run"); }
            if (!insert(reduced_, a->stage)) { fail("the stage is reduced twice"); }
        } else if (std::holds_alternative<op::optimizer_step>(what)) {
            stepped_ = true;
        }
    }
    /// Requires that every value is written while its buffer is free, read and updated while it is alive, and ended by
    /// one release. So nothing is read before it is written, or overwritten while a later instruction still reads it.
    constexpr void follow_buffers(const instruction& what) {
        if (const auto* r = std::get_if<op::release>(&what)) {
            const auto at = std::lower_bound(alive_.begin(), alive_.end(), r->buffer);
            if (at == alive_.end() || *at != r->buffer) { return fail("the buffer is not alive"); }
            alive_.erase(at);
            live_ -= model_.bytes(r->buffer);
            return;
        }
        for (const buffer_access& a : model_.accesses(program_.device, what)) {
            if (a.mode != access::write) {
                if (!contains(alive_, a.buffer)) { return fail(to_text(a.buffer) + " is read before it is written"); }
            } else if (insert(alive_, a.buffer)) {
                live_ += model_.bytes(a.buffer);
            } else {
                return fail(to_text(a.buffer) + " is written while its old value is alive");
            }
        }
        // A local skip must be in the cache when F reads it.
        if (const auto* f = std::get_if<op::forward>(&what)) {
            for (const int e : model_.edges_into(index_of(f->stage))) {
                if (model_.is_local(e) && !contains(stashed_, {edge_id{e}, f->microbatch})) {
                    return fail("skip edge " + std::to_string(e) + " is read before it is stashed");
                }
            }
        }
        peak_ = std::max(peak_, live_);
    }
    /// Whether the rank has sent and received all of its `messages`; records the first violation.
    constexpr bool require_messages(const std::vector<message_id>& messages) {
        for (const message_id& message : messages) {
            for (const bool sends : {true, false}) {
                const int side = sends ? model_.sender(message) : model_.receiver(message);
                if (side == program_.device && !contains(messages_, {sends, message})) {
                    fail_at_end(to_text(message) + (sends ? " was not sent" : " was not received"));
                    return false;
                }
            }
        }
        return true;
    }
    constexpr void require_complete() {
        if (passes_ != scheduled().size()) {
            const timed_pass& due = scheduled()[passes_];
            return fail_at_end(to_text(due.op, due.stage, due.microbatch) + " is missing");
        }
        const frozen_flow& frozen = model_.frozen();
        if (tasks_ != frozen.count_on(program_.device)) {
            return fail_at_end("task " + std::to_string(tasks_) + " of the device is missing");
        }
        for (int n = 0; n != frozen.count(); ++n) {
            if (frozen.makes_results(n) && frozen.reads(program_.device, frozen.task(n).component) &&
                !contains(kept_, n)) {
                return fail_at_end("result of frozen task " + std::to_string(n) + " was not kept");
            }
        }
        if (!require_messages(frozen.messages())) { return; }
        for (const microbatch_id m : model_.microbatches()) {
            if (!require_messages(model_.messages(m))) { return; }
        }
        for (int s = 0; s != model_.stage_count() && planned_.data_degree > 1; ++s) {
            if (model_.device_of_stage(s) == program_.device && !contains(reduced_, stage_id{s})) {
                return fail_at_end("stage " + std::to_string(s) + " was not reduced over the replicas");
            }
        }
        if (!alive_.empty()) { return fail_at_end(to_text(alive_.front()) + " was not released"); }
        if (!stepped_) { fail_at_end("optimizer_step is missing"); }
    }
};

} // namespace detail

PULSE_CONSTEXPR verdict first_violation(const plan& planned, const step_model& model,
                                        const std::vector<program>& programs,
                                        std::vector<std::int64_t>& live_peak_bytes) {
    live_peak_bytes.clear();
    if (programs.size() != static_cast<std::size_t>(model.device_count()) ||
        planned.order.devices.size() != programs.size()) {
        return "there must be one program and one schedule per device (" + std::to_string(model.device_count()) + ")";
    }
    for (std::size_t d = 0; d != programs.size(); ++d) {
        if (programs[d].device != static_cast<int>(d)) {
            return "programs[" + std::to_string(d) + "] belongs to rank " + std::to_string(programs[d].device) +
                   "; expected rank " + std::to_string(d);
        }
        detail::rank_check of_rank{planned, model, programs[d]};
        if (auto why = of_rank.run()) { return why; }
        live_peak_bytes.push_back(of_rank.live_peak_bytes());
    }
    return detail::first_deadlock(programs);
}

PULSE_INLINE check_report check(const plan& planned, const step_model& model, const std::vector<program>& programs) {
    check_report report{};
    std::vector<std::int64_t> peaks{};
    if (auto why = first_violation(planned, model, programs, peaks)) {
        report.violation = *why;
    } else {
        report.live_peak_bytes = std::move(peaks);
    }
    return report;
}

} // namespace pulse
