#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include <pulse/core/ids.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/plan/verdict.hpp>

namespace pulse {

/// Why an instruction is invalid anywhere in a program of `device` under this plan; none if it is valid.
///
/// It is valid if its ids exist, its stage or edge belongs to the device, and its message is one of the step's and
/// travels between the device and the peer that it names, with parts of equal sizes on both sides.
class instruction_rules {
public:
    constexpr instruction_rules(const plan& planned, const step_model& model, int device) :
        planned_(planned), model_(model), device_(device) {}

    constexpr verdict operator()(const op::forward& i) const {
        if (auto why = stage_here(i.stage)) { return why; }
        return microbatch(i.microbatch);
    }
    constexpr verdict operator()(const op::recompute& i) const {
        if (planned_.recompute == recomputation::none) { return "the plan recomputes nothing"; }
        if (planned_.recompute.kind == recomputation::selective && !planned_.recompute.is_whole(index_of(i.stage))) {
            return "the plan does not recompute the stage";
        }
        return pass_of(i.stage, i.microbatch);
    }
    constexpr verdict operator()(const op::backward_input& i) const {
        if (i.with_weight == planned_.split_backward) {
            return planned_.split_backward ? "the plan splits the backward" : "the plan does not split the backward";
        }
        return pass_of(i.stage, i.microbatch);
    }
    constexpr verdict operator()(const op::backward_weight& i) const {
        if (!planned_.split_backward) { return "the plan does not split the backward"; }
        return pass_of(i.stage, i.microbatch);
    }
    constexpr verdict operator()(const op::send& i) const { return message(i.message, i.peer, true); }
    constexpr verdict operator()(const op::recv& i) const { return message(i.message, i.peer, false); }
    constexpr verdict operator()(const op::stash& i) const {
        const int e = index_of(i.edge);
        if (e < 0 || e >= model_.edge_count()) { return "there is no such edge"; }
        if (!model_.is_local(e) || model_.source_device(e) != device_) {
            return "the edge does not join two stages of this device";
        }
        return microbatch(i.microbatch);
    }
    constexpr verdict operator()(const op::encode& i) const {
        if (i.task < 0 || i.task >= model_.frozen().count_on(device_)) { return "the device has no such frozen task"; }
        return {};
    }
    constexpr verdict operator()(const op::keep& i) const {
        const frozen_flow& frozen = model_.frozen();
        if (i.task < 0 || i.task >= frozen.count() || !frozen.makes_results(i.task)) {
            return "there is no such result";
        }
        if (!frozen.reads(device_, frozen.task(i.task).component)) { return "the device does not read the result"; }
        return {};
    }
    constexpr verdict operator()(const op::release& i) const {
        if (i.buffer.kind == buffer_kind::paused || i.buffer.kind == buffer_kind::result) { return {}; }
        return microbatch(i.buffer.microbatch);
    }
    constexpr verdict operator()(const op::all_reduce& i) const {
        if (planned_.data_degree < 2) { return "there are no replicas to reduce over"; }
        return stage_here(i.stage);
    }
    constexpr verdict operator()(const op::optimizer_step&) const { return {}; }

private:
    const plan& planned_;
    const step_model& model_;
    int device_;

    [[nodiscard]] constexpr verdict stage_here(stage_id stage) const {
        const int s = index_of(stage);
        if (s < 0 || s >= model_.stage_count()) { return "there is no such stage"; }
        if (model_.device_of_stage(s) != device_) { return "the stage is on another device"; }
        return {};
    }
    /// Accepts previews, too.
    [[nodiscard]] constexpr verdict microbatch(microbatch_id m) const {
        if (is_preview(m) && model_.has_preview(preview_of(m))) { return {}; }
        if (index_of(m) < 0 || index_of(m) >= planned_.microbatches) { return "there is no such microbatch"; }
        return {};
    }
    [[nodiscard]] constexpr verdict pass_of(stage_id stage, microbatch_id m) const {
        if (auto why = stage_here(stage)) { return why; }
        if (is_preview(m)) { return "a preview has no such pass"; }
        return microbatch(m);
    }
    [[nodiscard]] constexpr verdict message(const message_id& id, device_id peer, bool sends) const {
        const auto among = [&](const std::vector<message_id>& all) {
            return std::find(all.begin(), all.end(), id) != all.end();
        };
        bool known =
            false; // not by one conditional expression: g++ 12 frees such a vector twice in constant expressions
        if (is_of_frozen_task(id.kind)) {
            known = among(model_.frozen().messages());
        } else {
            if (auto why = microbatch(id.microbatch)) { return why; }
            known = among(model_.messages(id.microbatch));
        }
        if (!known) { return "the step has no such message"; }
        const int from = model_.sender(id);
        const int to = model_.receiver(id);
        if ((sends ? from : to) != device_) { return "the message does not belong to this rank"; }
        if ((sends ? to : from) != index_of(peer)) { return "the message does not belong to the peer"; }
        const std::vector<buffer_id> sent = model_.parts(id, from);
        const std::vector<buffer_id> received = model_.parts(id, to);
        if (sent.size() != received.size()) { return "its two sides have different numbers of parts"; }
        for (std::size_t i = 0; i != sent.size(); ++i) {
            const auto there = model_.bytes(sent[i]);
            const auto here = model_.bytes(received[i]);
            if (there != here) {
                return "part " + std::to_string(i) + " has " + std::to_string(there) + " bytes where it is sent and " +
                       std::to_string(here) + " where it is received";
            }
        }
        return {};
    }
};

[[nodiscard]] constexpr verdict ill_formed(const plan& planned, const step_model& model, int device,
                                           const instruction& what) {
    return std::visit(instruction_rules{planned, model, device}, what);
}

} // namespace pulse
