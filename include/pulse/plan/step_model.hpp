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
#include <pulse/plan/access.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/stage_footprint.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// What follows from a plan's cut for every step: which buffers exist, how large they are, what each instruction does
/// with them and what each message carries. Throws input_error when the cut does not fit the cost table.
///
/// An edge is *inside* a stage, *local* (two stages of one device) or *crossing* (two devices).
class step_model {
public:
    constexpr step_model(const plan& planned, cost_table costs) :
        costs_(std::move(costs)), stages_(planned.cut.stages), devices_(planned.cut.devices),
        split_backward_(planned.split_backward), relayed_(planned.routing == skip_routing::relayed),
        recompute_(planned.recompute) {
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
            run_[at] = s > 0 && device_of_stage(s - 1) == device_of_stage(s) ? run_[at - 1] : s;
            for (int l = first_layer(s); l <= last_layer(s); ++l) { stage_of_layer_[static_cast<std::size_t>(l)] = s; }
            if (s + 1 != stage_count()) { held_apart_[static_cast<std::size_t>(last_layer(s))] = 1; }
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

    [[nodiscard]] constexpr const cost_table& costs() const noexcept { return costs_; }
    [[nodiscard]] constexpr int stage_count() const noexcept { return static_cast<int>(stages_.size()); }
    [[nodiscard]] constexpr int layer_count() const noexcept { return static_cast<int>(costs_.layers.size()); }
    [[nodiscard]] constexpr int edge_count() const noexcept { return static_cast<int>(costs_.skips.size()); }
    [[nodiscard]] constexpr int device_count() const noexcept { return devices_; }
    [[nodiscard]] constexpr bool split_backward() const noexcept { return split_backward_; }
    [[nodiscard]] constexpr recomputation recompute() const noexcept { return recompute_; }
    [[nodiscard]] constexpr bool has_conditioning() const noexcept { return costs_.conditioning_bytes > 0; }
    /// Whether any of the conditioning needs a gradient.
    [[nodiscard]] constexpr bool has_conditioning_gradient() const noexcept {
        return costs_.conditioning_gradient_bytes() > 0;
    }
    [[nodiscard]] constexpr const layer_cost& layer(int l) const noexcept {
        return costs_.layers[static_cast<std::size_t>(l)];
    }
    [[nodiscard]] constexpr const skip_cost& edge(int e) const noexcept {
        return costs_.skips[static_cast<std::size_t>(e)];
    }
    [[nodiscard]] constexpr int first_layer(int s) const noexcept { return at(s).first_layer; }
    [[nodiscard]] constexpr int last_layer(int s) const noexcept { return at(s).last_layer; }
    [[nodiscard]] constexpr int device_of_stage(int s) const noexcept { return at(s).device; }
    [[nodiscard]] constexpr int stage_of_layer(int l) const noexcept {
        return stage_of_layer_[static_cast<std::size_t>(l)];
    }

    /// Whether the output of layer l is an `activation` buffer; if not, it lives inside its stage's `saved` buffer.
    [[nodiscard]] constexpr bool held_apart(int l) const noexcept {
        return held_apart_[static_cast<std::size_t>(l)] != 0;
    }
    /// Whether a recompute of the stage of layer l leaves the layer's output in scratch: no pass of the stage reads it,
    /// and what other stages read of it was handed out after F. Only whole recomputed stages, not those that make skips
    /// again.
    [[nodiscard]] constexpr bool drops_again(int l) const noexcept {
        return recompute_ == recomputation::stages && held_apart(l) && l == last_layer(stage_of_layer(l));
    }
    /// The lowest stage of the run of neighbouring stages on one device that contains s.
    [[nodiscard]] constexpr int conditioning_run(int s) const noexcept { return run_[static_cast<std::size_t>(s)]; }
    /// Edges whose target (source) is a layer of stage s, ascending; those inside the stage included.
    [[nodiscard]] constexpr const std::vector<int>& edges_into(int s) const noexcept {
        return into_[static_cast<std::size_t>(s)];
    }
    [[nodiscard]] constexpr const std::vector<int>& edges_from(int s) const noexcept {
        return from_[static_cast<std::size_t>(s)];
    }
    [[nodiscard]] constexpr int source_stage(int e) const noexcept { return stage_of_layer(edge(e).from); }
    [[nodiscard]] constexpr int target_stage(int e) const noexcept { return stage_of_layer(edge(e).to); }
    [[nodiscard]] constexpr int source_device(int e) const noexcept { return device_of_stage(source_stage(e)); }
    [[nodiscard]] constexpr int target_device(int e) const noexcept { return device_of_stage(target_stage(e)); }
    [[nodiscard]] constexpr bool is_inside(int e) const noexcept { return source_stage(e) == target_stage(e); }
    [[nodiscard]] constexpr bool is_crossing(int e) const noexcept { return source_device(e) != target_device(e); }
    [[nodiscard]] constexpr bool is_local(int e) const noexcept { return !is_inside(e) && !is_crossing(e); }

    [[nodiscard]] constexpr const stage_footprint& footprint(int s) const noexcept {
        return footprints_[static_cast<std::size_t>(s)];
    }
    /// Size of a buffer.
    [[nodiscard]] constexpr std::int64_t bytes(const buffer_id& buffer) const noexcept {
        switch (buffer.kind) {
        case buffer_kind::activation:
        case buffer_kind::activation_gradient: return layer(buffer.index).output_bytes;
        case buffer_kind::skip:
        case buffer_kind::skip_gradient: return edge(buffer.index).bytes;
        case buffer_kind::conditioning: return costs_.conditioning_bytes;
        case buffer_kind::conditioning_gradient: return costs_.conditioning_gradient_bytes();
        case buffer_kind::saved: return footprint(buffer.index).saved_bytes;
        case buffer_kind::deferred: return footprint(buffer.index).deferred_bytes;
        }
        return 0;
    }

    /// Every message of one microbatch: boundaries, their gradients, then direct skips and theirs.
    [[nodiscard]] constexpr std::vector<message_id> messages(microbatch_id m) const {
        std::vector<message_id> all{};
        for (const bool backward : {false, true}) {
            for (int b = 0; b + 1 < stage_count(); ++b) {
                if (device_of_stage(b) == device_of_stage(b + 1)) { continue; }
                all.push_back({backward ? message_kind::boundary_gradient : message_kind::boundary, b, m});
            }
        }
        for (const bool backward : {false, true}) {
            for (int e = 0; e != edge_count() && !relayed_; ++e) {
                if (!is_crossing(e)) { continue; }
                all.push_back({backward ? message_kind::skip_gradient : message_kind::skip, e, m});
            }
        }
        return all;
    }
    /// The stage whose F (of a boundary, a skip) or B (of a gradient) makes what the message carries; -1 between
    /// replicas.
    [[nodiscard]] constexpr int producer_stage(const message_id& message) const noexcept {
        switch (message.kind) {
        case message_kind::boundary: return message.index;
        case message_kind::boundary_gradient: return message.index + 1;
        case message_kind::skip: return source_stage(message.index);
        case message_kind::skip_gradient: return target_stage(message.index);
        default: return -1;
        }
    }
    /// The stage whose F or B waits for the message first.
    [[nodiscard]] constexpr int consumer_stage(const message_id& message) const noexcept {
        switch (message.kind) {
        case message_kind::boundary: return message.index + 1;
        case message_kind::boundary_gradient: return message.index;
        case message_kind::skip: return target_stage(message.index);
        case message_kind::skip_gradient: return source_stage(message.index);
        default: return -1;
        }
    }
    [[nodiscard]] static constexpr bool is_backward(const message_id& message) noexcept {
        return message.kind == message_kind::boundary_gradient || message.kind == message_kind::skip_gradient;
    }
    [[nodiscard]] constexpr int sender(const message_id& message) const noexcept {
        return device_of_stage(producer_stage(message));
    }
    [[nodiscard]] constexpr int receiver(const message_id& message) const noexcept {
        return device_of_stage(consumer_stage(message));
    }

    /// The buffers of a message on `device`'s side; the two sides correspond position by position.
    ///
    /// A relayed skip is `activation` on the run of stages that made it and `skip` on every run after that. A skip that
    /// is also the main activation of a boundary travels twice: it is two buffers on the other side.
    [[nodiscard]] constexpr std::vector<buffer_id> parts(const message_id& message, int device) const {
        const microbatch_id m = message.microbatch;
        const bool sends = sender(message) == device;
        const int index = message.index;
        if (message.kind == message_kind::skip) {
            // Named, because nvcc 13 crashes on the conditional inside the braces.
            const buffer_id part = sends ? buffer_id{buffer_kind::activation, edge(index).from, m}
                                         : buffer_id{buffer_kind::skip, index, m};
            return {part};
        }
        if (message.kind == message_kind::skip_gradient) { return {{buffer_kind::skip_gradient, index, m}}; }
        const bool backward = message.kind == message_kind::boundary_gradient;
        const int own = sends == backward ? index + 1 : index; // the stage of this boundary on this side
        std::vector<buffer_id> all{
            {backward ? buffer_kind::activation_gradient : buffer_kind::activation, last_layer(index), m}};
        if (backward ? has_conditioning_gradient() : has_conditioning()) {
            all.push_back(
                {backward ? buffer_kind::conditioning_gradient : buffer_kind::conditioning, conditioning_run(own), m});
        }
        for (int e = 0; e != edge_count() && relayed_; ++e) {
            if (!is_crossing(e) || source_stage(e) > index || target_stage(e) <= index) { continue; }
            if (backward) {
                all.push_back({buffer_kind::skip_gradient, e, m});
            } else if (sends && conditioning_run(source_stage(e)) == conditioning_run(index)) {
                all.push_back({buffer_kind::activation, edge(e).from, m});
            } else {
                all.push_back({buffer_kind::skip, e, m});
            }
        }
        return all;
    }
    /// Whether the part at `position` is a skip tensor or its gradient, for counting.
    [[nodiscard]] constexpr bool is_skip_part(const message_id& message, std::size_t position) const noexcept {
        if (message.kind == message_kind::skip || message.kind == message_kind::skip_gradient) { return true; }
        const bool second = is_backward(message) ? has_conditioning_gradient() : has_conditioning();
        return position >= (second ? 2U : 1U);
    }

    /// What `instruction` on `device` does with which buffers; each buffer at most once. Instructions that touch no
    /// buffer (and release, which ends one) give an empty list.
    [[nodiscard]] constexpr std::vector<buffer_access> accesses(int device, const instruction& what) const {
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
        }
        return all;
    }

private:
    cost_table costs_;
    std::vector<stage> stages_;
    int devices_;
    bool split_backward_;
    bool relayed_;
    recomputation recompute_;
    std::vector<int> stage_of_layer_{};
    std::vector<char> held_apart_{}; // of bool: clang 14 has no constexpr vector<bool>
    std::vector<char> waits_here_{}; // whether a later stage of the same device reads the layer's output as a skip
    std::vector<std::vector<int>> into_{};
    std::vector<std::vector<int>> from_{};
    std::vector<int> run_{};
    std::vector<stage_footprint> footprints_{};

    [[nodiscard]] constexpr const stage& at(int s) const noexcept { return stages_[static_cast<std::size_t>(s)]; }

    [[noreturn]] static void refuse(const std::string& field, int index, const std::string& why) {
        throw input_error("pulse: plan: " + field + "[" + std::to_string(index) + "] " + why);
    }
    constexpr void validate() const {
        if (stages_.empty()) { throw input_error("pulse: plan: stages is empty"); }
        int next = 0;
        for (int s = 0; s != stage_count(); ++s) {
            if (at(s).index != s) { refuse("stages", s, "has an index other than its position"); }
            if (at(s).first_layer != next || at(s).last_layer < next) {
                refuse("stages", s, "must begin at layer " + std::to_string(next) + " and hold at least one layer");
            }
            if (at(s).device < 0 || at(s).device >= devices_) { refuse("stages", s, "is on a device out of range"); }
            next = at(s).last_layer + 1;
        }
        if (next != layer_count()) {
            refuse("stages", stage_count() - 1,
                   "must end at the model's last layer, " + std::to_string(layer_count() - 1));
        }
        for (int e = 0; e != edge_count(); ++e) {
            if (edge(e).from < 0 || edge(e).to >= layer_count() || edge(e).from >= edge(e).to) {
                refuse("skips", e, "must go from a layer to a later layer of the model");
            }
        }
    }

    static constexpr void add(std::vector<buffer_access>& all, buffer_id buffer, access mode) {
        const buffer_access one{buffer, mode};
        if (std::find(all.begin(), all.end(), one) == all.end()) { all.push_back(one); }
    }
    /// What F, B and W of a stage read of what other stages made.
    constexpr void add_inputs(std::vector<buffer_access>& all, int s, microbatch_id m) const {
        if (s > 0) { add(all, {buffer_kind::activation, first_layer(s) - 1, m}, access::read); }
        for (const int e : edges_into(s)) {
            if (is_inside(e)) { continue; }
            add(all,
                is_crossing(e) ? buffer_id{buffer_kind::skip, e, m}
                               : buffer_id{buffer_kind::activation, edge(e).from, m},
                access::read);
        }
    }
    constexpr void add_forward(std::vector<buffer_access>& all, int s, microbatch_id m, bool again) const {
        add_inputs(all, s, m);
        if (has_conditioning()) {
            // Stage 0 makes the conditioning once; the buffer outlives what a recompute restores.
            add(all, {buffer_kind::conditioning, conditioning_run(s), m},
                s == 0 && !again ? access::write : access::read);
        }
        add(all, {buffer_kind::saved, s, m}, access::write);
        for (int l = first_layer(s); l <= last_layer(s); ++l) {
            if (!held_apart(l) || (again && drops_again(l))) { continue; }
            // A skip that a decoder of this device reads outlives F: a stage that runs again writes the same bits over
            // it.
            const bool alive =
                again && recompute_ == recomputation::stages && waits_here_[static_cast<std::size_t>(l)] != 0;
            add(all, {buffer_kind::activation, l, m}, alive ? access::update : access::write);
        }
    }
    /// What B and W read of what F of their stage and of other stages left.
    constexpr void add_left_by_forward(std::vector<buffer_access>& all, int s, microbatch_id m) const {
        add_inputs(all, s, m);
        if (has_conditioning()) { add(all, {buffer_kind::conditioning, conditioning_run(s), m}, access::read); }
        add(all, {buffer_kind::saved, s, m}, access::read);
        for (int l = first_layer(s); l < last_layer(s); ++l) {
            if (held_apart(l)) { add(all, {buffer_kind::activation, l, m}, access::read); }
        }
    }
    constexpr void add_backward_input(std::vector<buffer_access>& all, int s, microbatch_id m) const {
        add_left_by_forward(all, s, m);
        // The last stage begins both gradients; in the others they arrived, and skip gradients or a stage's share are
        // added.
        const access mode = s + 1 == stage_count() ? access::write : access::update;
        add(all, {buffer_kind::activation_gradient, last_layer(s), m}, mode);
        if (has_conditioning_gradient()) {
            add(all, {buffer_kind::conditioning_gradient, conditioning_run(s), m}, mode);
        }
        add(all, {buffer_kind::deferred, s, m}, access::write);
        if (s > 0) { add(all, {buffer_kind::activation_gradient, first_layer(s) - 1, m}, access::write); }
        for (const int e : edges_into(s)) { add(all, {buffer_kind::skip_gradient, e, m}, access::write); }
        for (const int e : edges_from(s)) {
            if (!is_inside(e)) { add(all, {buffer_kind::skip_gradient, e, m}, access::read); }
        }
    }
    constexpr void add_backward_weight(std::vector<buffer_access>& all, int s, microbatch_id m) const {
        add_left_by_forward(all, s, m);
        add(all, {buffer_kind::deferred, s, m}, access::read);
        add(all, {buffer_kind::activation_gradient, last_layer(s), m}, access::read);
        if (s == 0 && has_conditioning_gradient()) {
            add(all, {buffer_kind::conditioning_gradient, 0, m}, access::read);
        }
    }
};

} // namespace pulse
