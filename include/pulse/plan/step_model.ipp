#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/plan/access.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/stage_footprint.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

PULSE_CONSTEXPR void step_model::lay_out() {
    validate();
    const auto stages = static_cast<std::size_t>(stage_count());
    const auto layers = static_cast<std::size_t>(layer_count());
    stage_of_layer_.resize(layers, 0);
    held_apart_.resize(layers, 0);
    waits_here_.resize(layers, 0);
    into_.resize(stages);
    from_.resize(stages);
    run_.resize(stages, 0);
    for (int s = 0; s != stage_count(); ++s) {
        const auto at = static_cast<std::size_t>(s);
        run_[at] = !begins_chain(s) && device_of_stage(s - 1) == device_of_stage(s) ? run_[at - 1] : s;
        for (int l = first_layer(s); l <= last_layer(s); ++l) { stage_of_layer_[static_cast<std::size_t>(l)] = s; }
        if (!ends_chain(s)) { held_apart_[static_cast<std::size_t>(last_layer(s))] = 1; }
    }
    for (int e = 0; e != edge_count(); ++e) {
        into_[static_cast<std::size_t>(target_stage(e))].push_back(e);
        from_[static_cast<std::size_t>(source_stage(e))].push_back(e);
        if (!is_inside(e)) { held_apart_[static_cast<std::size_t>(edge(e).from)] = 1; }
        if (is_local(e)) { waits_here_[static_cast<std::size_t>(edge(e).from)] = 1; }
    }
    for (int s = 0; s != stage_count(); ++s) {
        footprints_.push_back(lay_out_stage(costs_, first_layer(s), last_layer(s), held_apart_, split_backward_));
    }
}

PULSE_CONSTEXPR std::vector<message_id> step_model::messages(microbatch_id m) const {
    std::vector<message_id> all{};
    for (const bool backward : {false, true}) {
        if (backward && is_preview(m)) { break; }
        for (int b = 0; b + 1 < stage_count(); ++b) {
            if (ends_chain(b) || device_of_stage(b) == device_of_stage(b + 1)) { continue; }
            const message_id message{backward ? message_kind::boundary_gradient : message_kind::boundary, b, m};
            if (!backward || !parts(message, device_of_stage(b)).empty()) { all.push_back(message); }
        }
    }
    for (const bool backward : {false, true}) {
        if (backward && is_preview(m)) { break; }
        for (int e = 0; e != edge_count() && !relayed_; ++e) {
            if (!is_crossing(e) || (backward && !has_gradient(edge(e).from))) { continue; }
            all.push_back({backward ? message_kind::skip_gradient : message_kind::skip, e, m});
        }
    }
    if (is_preview(m) && device_of_stage(stage_count() - 1) != device_of_stage(0)) {
        all.push_back({message_kind::prediction, 0, m});
    }
    return all;
}

PULSE_CONSTEXPR std::vector<buffer_id> step_model::parts(const message_id& message, int device) const {
    const microbatch_id m = message.microbatch;
    const int index = message.index;
    if (message.kind == message_kind::encoding) { return {{buffer_kind::paused, index, m}}; }
    if (message.kind == message_kind::encoded) { return {{buffer_kind::result, index, microbatch_id{0}}}; }
    if (message.kind == message_kind::prediction) { return {{buffer_kind::prediction, 0, m}}; }
    const bool sends = sender(message) == device;
    if (message.kind == message_kind::skip) {
        // Named, because nvcc 13 crashes on the conditional inside the braces.
        const buffer_id part =
            sends ? buffer_id{buffer_kind::activation, edge(index).from, m} : buffer_id{buffer_kind::skip, index, m};
        return {part};
    }
    if (message.kind == message_kind::skip_gradient) { return {{buffer_kind::skip_gradient, index, m}}; }
    const bool backward = message.kind == message_kind::boundary_gradient;
    const int own = sends == backward ? index + 1 : index; // the stage of this boundary on this side
    std::vector<buffer_id> all{};
    if (!backward || has_gradient(last_layer(index))) {
        all.push_back({backward ? buffer_kind::activation_gradient : buffer_kind::activation, last_layer(index), m});
    }
    if (backward ? has_conditioning_gradient(own) : has_conditioning(own)) {
        all.push_back(
            {backward ? buffer_kind::conditioning_gradient : buffer_kind::conditioning, conditioning_run(own), m});
    }
    for (int e = 0; e != edge_count() && relayed_; ++e) {
        if (!is_crossing(e) || source_stage(e) > index || target_stage(e) <= index) { continue; }
        if (backward) {
            if (has_gradient(edge(e).from)) { all.push_back({buffer_kind::skip_gradient, e, m}); }
        } else if (sends && conditioning_run(source_stage(e)) == conditioning_run(index)) {
            all.push_back({buffer_kind::activation, edge(e).from, m});
        } else {
            all.push_back({buffer_kind::skip, e, m});
        }
    }
    return all;
}

PULSE_CONSTEXPR std::vector<buffer_access> step_model::accesses(int device, const instruction& what) const {
    std::vector<buffer_access> all{};
    if (const auto* f = std::get_if<op::forward>(&what)) {
        add_forward(all, index_of(f->stage), f->microbatch, false);
    } else if (const auto* r = std::get_if<op::recompute>(&what)) {
        add_forward(all, index_of(r->stage), r->microbatch, true);
    } else if (const auto* b = std::get_if<op::backward_input>(&what)) {
        add_backward_input(all, index_of(b->stage), b->microbatch);
    } else if (const auto* w = std::get_if<op::backward_weight>(&what)) {
        add_backward_weight(all, index_of(w->stage), w->microbatch);
    } else if (const auto* s = std::get_if<op::send>(&what)) {
        for (const buffer_id& part : parts(s->message, device)) { add(all, part, access::read); }
    } else if (const auto* v = std::get_if<op::recv>(&what)) {
        for (const buffer_id& part : parts(v->message, device)) { add(all, part, access::write); }
    } else if (const auto* k = std::get_if<op::stash>(&what)) {
        add(all, {buffer_kind::activation, edge(index_of(k->edge)).from, k->microbatch}, access::read);
    } else if (const auto* e = std::get_if<op::encode>(&what)) {
        add_encode(all, frozen_.first_of(device) + e->task);
    } else if (const auto* p = std::get_if<op::keep>(&what)) {
        add(all, {buffer_kind::result, p->task, microbatch_id{0}}, access::read);
    }
    return all;
}

PULSE_INLINE void step_model::refuse(const std::string& field, int index, const std::string& why) {
    throw input_error("pulse: plan: " + field + "[" + std::to_string(index) + "] " + why);
}

PULSE_CONSTEXPR void step_model::validate() const {
    if (stages_.empty()) { throw input_error("pulse: plan: stages is empty"); }
    int next = 0;
    for (int s = 0; s != stage_count(); ++s) {
        if (at(s).index != s) { refuse("stages", s, "has an index other than its position"); }
        if (at(s).first_layer != next || at(s).last_layer < next) {
            refuse("stages", s, "must begin at layer " + std::to_string(next) + " and hold at least one layer");
        }
        if (at(s).device < 0 || at(s).device >= devices_) { refuse("stages", s, "has a device out of range"); }
        next = at(s).last_layer + 1;
    }
    if (next != layer_count()) {
        refuse("stages", stage_count() - 1, "must end at the model's last layer, " + std::to_string(layer_count() - 1));
    }
    if (further_chains_.size() != costs_.further_chains.size()) {
        throw input_error("pulse: plan: further_chains must have one entry per further backbone of the costs (" +
                          std::to_string(costs_.further_chains.size()) + "), not " +
                          std::to_string(further_chains_.size()));
    }
    for (std::size_t c = 0; c != further_chains_.size(); ++c) {
        const int s = further_chains_[c];
        if (s < 1 || s >= stage_count() || first_layer(s) != costs_.further_chains[c].first_layer) {
            refuse("further_chains", static_cast<int>(c), "must be the stage that begins at a backbone's first layer");
        }
    }
    if (!recompute_.stages.empty() && recompute_.stages.size() != stages_.size()) {
        throw input_error("pulse: plan: recomputed_stages must have one entry for each stage");
    }
    for (int e = 0; e != edge_count(); ++e) {
        if (edge(e).from < 0 || edge(e).to >= layer_count() || edge(e).from >= edge(e).to) {
            refuse("skips", e, "must go from a layer to a later layer of the model");
        }
    }
}

PULSE_CONSTEXPR void step_model::add(std::vector<buffer_access>& all, buffer_id buffer, access mode) {
    const buffer_access one{buffer, mode};
    if (std::find(all.begin(), all.end(), one) == all.end()) { all.push_back(one); }
}

PULSE_CONSTEXPR void step_model::add_inputs(std::vector<buffer_access>& all, int s, microbatch_id m) const {
    if (!begins_chain(s)) { add(all, {buffer_kind::activation, first_layer(s) - 1, m}, access::read); }
    for (const int e : edges_into(s)) {
        if (is_inside(e)) { continue; }
        add(all,
            is_crossing(e) ? buffer_id{buffer_kind::skip, e, m} : buffer_id{buffer_kind::activation, edge(e).from, m},
            access::read);
    }
}

PULSE_CONSTEXPR void step_model::add_forward(std::vector<buffer_access>& all, int s, microbatch_id m,
                                             bool again) const {
    add_inputs(all, s, m);
    if (has_conditioning(s)) {
        // The first stage makes the conditioning once; the buffer stays alive, so a recompute only reads it.
        add(all, {buffer_kind::conditioning, conditioning_run(s), m},
            begins_chain(s) && !again ? access::write : access::read);
    }
    if (s == 0 && has_preview(m)) { add(all, {buffer_kind::prediction, 0, preview_of(m)}, access::read); }
    if (s + 1 == stage_count() && is_preview(m)) { add(all, {buffer_kind::prediction, 0, m}, access::write); }
    add(all, {buffer_kind::saved, s, m}, access::write);
    for (int l = first_layer(s); l <= last_layer(s); ++l) {
        if (!held_apart(l) || (again && drops_again(l))) { continue; }
        // A skip that a decoder of this device reads outlives F; a recompute overwrites it with the same bits.
        const bool alive = again && recompute_.is_whole(s) && waits_here_[static_cast<std::size_t>(l)] != 0;
        add(all, {buffer_kind::activation, l, m}, alive ? access::update : access::write);
    }
}

PULSE_CONSTEXPR void step_model::add_left_by_forward(std::vector<buffer_access>& all, int s, microbatch_id m) const {
    add_inputs(all, s, m);
    if (has_conditioning(s)) { add(all, {buffer_kind::conditioning, conditioning_run(s), m}, access::read); }
    add(all, {buffer_kind::saved, s, m}, access::read);
    for (int l = first_layer(s); l < last_layer(s); ++l) {
        if (held_apart(l)) { add(all, {buffer_kind::activation, l, m}, access::read); }
    }
}

PULSE_CONSTEXPR void step_model::add_backward_input(std::vector<buffer_access>& all, int s, microbatch_id m) const {
    add_left_by_forward(all, s, m);
    // The last stage writes both gradients; other stages have received them, and add skip gradients or their own part.
    const access mode = ends_chain(s) ? access::write : access::update;
    if (has_gradient(last_layer(s))) { add(all, {buffer_kind::activation_gradient, last_layer(s), m}, mode); }
    if (has_conditioning_gradient(s)) { add(all, {buffer_kind::conditioning_gradient, conditioning_run(s), m}, mode); }
    add(all, {buffer_kind::deferred, s, m}, access::write);
    if (!begins_chain(s) && has_gradient(first_layer(s) - 1)) {
        add(all, {buffer_kind::activation_gradient, first_layer(s) - 1, m}, access::write);
    }
    for (const int e : edges_into(s)) {
        if (has_gradient(edge(e).from)) { add(all, {buffer_kind::skip_gradient, e, m}, access::write); }
    }
    for (const int e : edges_from(s)) {
        if (!is_inside(e) && has_gradient(edge(e).from)) { add(all, {buffer_kind::skip_gradient, e, m}, access::read); }
    }
}

PULSE_CONSTEXPR void step_model::add_backward_weight(std::vector<buffer_access>& all, int s, microbatch_id m) const {
    add_left_by_forward(all, s, m);
    add(all, {buffer_kind::deferred, s, m}, access::read);
    if (has_gradient(last_layer(s))) { add(all, {buffer_kind::activation_gradient, last_layer(s), m}, access::read); }
    if (begins_chain(s) && has_conditioning_gradient(s)) {
        add(all, {buffer_kind::conditioning_gradient, s, m}, access::read);
    }
}

PULSE_CONSTEXPR void step_model::add_encode(std::vector<buffer_access>& all, int number) const {
    for (const frozen_flow::pause& p : frozen_.into(number)) {
        add(all, {buffer_kind::paused, p.before, microbatch_id{p.after}}, access::read);
    }
    for (const frozen_flow::pause& p : frozen_.from(number)) {
        add(all, {buffer_kind::paused, p.before, microbatch_id{p.after}}, access::write);
    }
    if (frozen_.makes_results(number)) { add(all, {buffer_kind::result, number, microbatch_id{0}}, access::write); }
}

} // namespace pulse
