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
#include <pulse/plan/frozen_flow.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/stage_footprint.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// What a plan's cut determines for every step: the buffers and their sizes, how each instruction uses them and what
/// each message carries. Throws input_error if the cut does not fit the cost table.
///
/// An edge is *inside* a stage, *local* (two stages of one device) or *crossing* (two devices).
class step_model {
public:
    // Defined here in every build: if an inline constructor is compiled separately, clang does not emit the symbol that
    // callers link to.
    PULSE_CONSTEXPR step_model(const plan& planned, cost_table costs) :
        costs_(std::move(costs)), stages_(planned.cut.stages), devices_(planned.cut.devices),
        split_backward_(planned.split_backward), relayed_(planned.routing == skip_routing::relayed),
        recompute_(planned.recompute), gradient_release_(planned.gradient_release),
        further_chains_(planned.further_chains), microbatches_(planned.microbatches), previews_(planned.previews) {
        lay_out();
        frozen_ = frozen_flow{planned, costs_};
    }

    [[nodiscard]] constexpr const cost_table& costs() const noexcept { return costs_; }
    [[nodiscard]] constexpr int stage_count() const noexcept { return static_cast<int>(stages_.size()); }
    [[nodiscard]] constexpr int layer_count() const noexcept { return static_cast<int>(costs_.layers.size()); }
    [[nodiscard]] constexpr int edge_count() const noexcept { return static_cast<int>(costs_.skips.size()); }
    [[nodiscard]] constexpr int device_count() const noexcept { return devices_; }
    [[nodiscard]] constexpr bool split_backward() const noexcept { return split_backward_; }
    [[nodiscard]] constexpr const stage_recomputation& recompute() const noexcept { return recompute_; }
    [[nodiscard]] constexpr bool gradient_release() const noexcept { return gradient_release_; }
    /// Number of microbatches with a preview, and whether m has one; false if m is a preview.
    [[nodiscard]] constexpr int previews() const noexcept { return previews_; }
    [[nodiscard]] constexpr bool has_preview(microbatch_id m) const noexcept {
        return index_of(m) >= microbatches_ - previews_ && index_of(m) < microbatches_;
    }
    /// The microbatches of a step, then their previews.
    [[nodiscard]] constexpr std::vector<microbatch_id> microbatches() const {
        std::vector<microbatch_id> all{};
        for (int m = 0; m < microbatches_; ++m) { all.push_back(microbatch_id{m}); }
        for (int m = microbatches_ - previews_; m < microbatches_; ++m) { all.push_back(preview_of(microbatch_id{m})); }
        return all;
    }
    /// First stages of the backbones after the first (plan::further_chains).
    [[nodiscard]] constexpr const std::vector<int>& further_chains() const noexcept { return further_chains_; }
    /// Whether s is the first (last) stage of its backbone.
    [[nodiscard]] constexpr bool begins_chain(int s) const noexcept {
        return s == 0 || std::find(further_chains_.begin(), further_chains_.end(), s) != further_chains_.end();
    }
    [[nodiscard]] constexpr bool ends_chain(int s) const noexcept {
        return s + 1 == stage_count() || begins_chain(s + 1);
    }
    /// Costs of the backbone of stage s.
    [[nodiscard]] constexpr chain_costs chain_of(int s) const noexcept { return costs_.chain_of(first_layer(s)); }
    [[nodiscard]] constexpr bool has_conditioning(int s = 0) const noexcept {
        return chain_of(s).conditioning_bytes > 0;
    }
    /// Whether any of the conditioning of stage s needs a gradient.
    [[nodiscard]] constexpr bool has_conditioning_gradient(int s = 0) const noexcept {
        return chain_of(s).conditioning_gradient_bytes() > 0;
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
    /// Whether a recompute leaves the output of layer l in scratch: no pass of its stage reads it, and other stages got
    /// it after F. Only for stages that are recomputed whole, not under recomputation::skips.
    [[nodiscard]] constexpr bool drops_again(int l) const noexcept {
        return recompute_.is_whole(stage_of_layer(l)) && held_apart(l) && l == last_layer(stage_of_layer(l));
    }
    /// Whether any output of layer l has a gradient; if not, the layer runs forward only.
    [[nodiscard]] constexpr bool has_gradient(int l) const noexcept { return !layer(l).forward_only(); }
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

    /// What the plan's frozen tasks hand to each other and to ranks.
    [[nodiscard]] constexpr const frozen_flow& frozen() const noexcept { return frozen_; }

    [[nodiscard]] constexpr const stage_footprint& footprint(int s) const noexcept {
        return footprints_[static_cast<std::size_t>(s)];
    }
    /// Size of a buffer.
    [[nodiscard]] constexpr std::int64_t bytes(const buffer_id& buffer) const noexcept {
        switch (buffer.kind) {
        case buffer_kind::activation: return layer(buffer.index).sent_bytes();
        case buffer_kind::activation_gradient: return layer(buffer.index).returned_bytes();
        case buffer_kind::skip: return edge(buffer.index).bytes;
        case buffer_kind::skip_gradient: return costs_.gradient_bytes(edge(buffer.index));
        case buffer_kind::conditioning: return chain_of(buffer.index).conditioning_bytes;
        case buffer_kind::conditioning_gradient: return chain_of(buffer.index).conditioning_gradient_bytes();
        case buffer_kind::saved:
            // The output of a preview is its prediction; its block ends before the model's output, which lies last.
            return is_preview(buffer.microbatch) && buffer.index + 1 == stage_count()
                       ? footprint(buffer.index).of_layer(last_layer(buffer.index)).output
                       : footprint(buffer.index).saved_bytes;
        case buffer_kind::deferred: return footprint(buffer.index).deferred_bytes;
        case buffer_kind::paused: return frozen_.pause_bytes(buffer.index, index_of(buffer.microbatch));
        case buffer_kind::result: return frozen_.result_bytes(buffer.index);
        case buffer_kind::prediction: return layer(layer_count() - 1).output_bytes;
        }
        return 0;
    }

    /// Every message of one microbatch: boundaries, their gradients, then direct skips and their gradients; of a
    /// preview only those without gradients, then the prediction. Messages of frozen tasks belong to no microbatch.
    [[nodiscard]] PULSE_CONSTEXPR std::vector<message_id> messages(microbatch_id m) const;
    /// The stage whose F (boundary, skip) or B (gradient) makes what the message carries; -1 for messages between
    /// replicas and of frozen tasks.
    [[nodiscard]] constexpr int producer_stage(const message_id& message) const noexcept {
        switch (message.kind) {
        case message_kind::boundary: return message.index;
        case message_kind::boundary_gradient: return message.index + 1;
        case message_kind::skip: return source_stage(message.index);
        case message_kind::skip_gradient: return target_stage(message.index);
        case message_kind::prediction: return stage_count() - 1;
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
        case message_kind::prediction: return 0;
        default: return -1;
        }
    }
    [[nodiscard]] static constexpr bool is_backward(const message_id& message) noexcept {
        return message.kind == message_kind::boundary_gradient || message.kind == message_kind::skip_gradient;
    }
    [[nodiscard]] constexpr int sender(const message_id& message) const noexcept {
        if (is_of_frozen_task(message.kind)) { return frozen_.sender(message); }
        return device_of_stage(producer_stage(message));
    }
    [[nodiscard]] constexpr int receiver(const message_id& message) const noexcept {
        if (is_of_frozen_task(message.kind)) { return frozen_.receiver(message); }
        return device_of_stage(consumer_stage(message));
    }

    /// The buffers of a message on `device`'s side; the two sides correspond position by position.
    ///
    /// A relayed skip is `activation` on the run of stages that made it and `skip` on every run after that. A skip that
    /// is also the main activation of a boundary travels twice: it is two buffers on the other side.
    [[nodiscard]] PULSE_CONSTEXPR std::vector<buffer_id> parts(const message_id& message, int device) const;
    /// Whether the part at `position` is a skip tensor or its gradient, for counting.
    [[nodiscard]] constexpr bool is_skip_part(const message_id& message, std::size_t position) const noexcept {
        if (message.kind == message_kind::skip || message.kind == message_kind::skip_gradient) { return true; }
        if (is_of_frozen_task(message.kind)) { return false; }
        if (!is_backward(message)) { return position >= (has_conditioning(message.index) ? 2U : 1U); }
        const bool first = has_gradient(last_layer(message.index));
        return position >= (first ? 1U : 0U) + (has_conditioning_gradient(message.index) ? 1U : 0U);
    }

    /// The buffers that an instruction on `device` touches, and how; each at most once. Empty for instructions that
    /// touch none, and for release.
    [[nodiscard]] PULSE_CONSTEXPR std::vector<buffer_access> accesses(int device, const instruction& what) const;

private:
    cost_table costs_;
    std::vector<stage> stages_;
    int devices_;
    bool split_backward_;
    bool relayed_;
    stage_recomputation recompute_;
    bool gradient_release_;
    std::vector<int> further_chains_; // first stages
    int microbatches_;
    int previews_;
    std::vector<int> stage_of_layer_{};
    std::vector<char> held_apart_{}; // of bool: clang 14 has no constexpr vector<bool>
    std::vector<char> waits_here_{}; // whether a later stage of the same device reads the layer's output as a skip
    std::vector<std::vector<int>> into_{};
    std::vector<std::vector<int>> from_{};
    std::vector<int> run_{};
    std::vector<stage_footprint> footprints_{};
    frozen_flow frozen_{};

    [[nodiscard]] constexpr const stage& at(int s) const noexcept { return stages_[static_cast<std::size_t>(s)]; }

    [[noreturn]] static void refuse(const std::string& field, int index, const std::string& why);
    PULSE_CONSTEXPR void validate() const;
    PULSE_CONSTEXPR void lay_out();

    static PULSE_CONSTEXPR void add(std::vector<buffer_access>& all, buffer_id buffer, access mode);
    /// Adds what F, B and W of a stage read from other stages.
    PULSE_CONSTEXPR void add_inputs(std::vector<buffer_access>& all, int s, microbatch_id m) const;
    PULSE_CONSTEXPR void add_forward(std::vector<buffer_access>& all, int s, microbatch_id m, bool again) const;
    /// Adds what B and W read from F of their own and of other stages.
    PULSE_CONSTEXPR void add_left_by_forward(std::vector<buffer_access>& all, int s, microbatch_id m) const;
    PULSE_CONSTEXPR void add_backward_input(std::vector<buffer_access>& all, int s, microbatch_id m) const;
    PULSE_CONSTEXPR void add_backward_weight(std::vector<buffer_access>& all, int s, microbatch_id m) const;
    PULSE_CONSTEXPR void add_encode(std::vector<buffer_access>& all, int number) const;
};

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/plan/step_model.ipp> // IWYU pragma: keep
#endif
