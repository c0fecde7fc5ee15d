#pragma once

#include <compare>
#include <cstdint>
#include <variant>

#include <pulse/core/ids.hpp>

namespace pulse {

/// What a buffer of a step holds. `index` below is the field of buffer_id.
enum class buffer_kind : std::uint8_t {
    activation,   ///< output of layer `index` that another stage reads, followed by the residual that is open there
    skip,         ///< the tensor of skip edge `index` as received from another device
    conditioning, ///< conditioning for the run of neighbouring stages on this device that begins at stage `index`
    saved,        ///< stage `index`: its inner activations and what F leaves for B and W
    deferred,     ///< stage `index`: gradients inside the stage, and what B leaves for W
    activation_gradient,   ///< gradient of `activation` of layer `index`, the last one of its stage
    conditioning_gradient, ///< gradient of `conditioning` with the same index
    skip_gradient,         ///< gradient of the tensor of skip edge `index`
    paused,                ///< what frozen task `index` leaves for task `microbatch`, which continues its chains
    result,                ///< what frozen task `index` makes for the next step
    prediction,            ///< the model's output, which a preview leaves for the forward of its microbatch
};

/// Id of the preview of a microbatch, which is treated as a microbatch of its own: it has forwards only, and its
/// buffers and messages are separate from those of the microbatch.
[[nodiscard]] constexpr microbatch_id preview_of(microbatch_id m) noexcept { return microbatch_id{-1 - index_of(m)}; }
[[nodiscard]] constexpr bool is_preview(microbatch_id m) noexcept { return index_of(m) < 0; }
/// The number of the microbatch whose data m runs on: its own, or that of the microbatch it previews.
[[nodiscard]] constexpr int data_of(microbatch_id m) noexcept { return is_preview(m) ? -1 - index_of(m) : index_of(m); }

/// One buffer of one microbatch, or of frozen tasks, on one rank.
struct buffer_id {
    buffer_kind kind{};
    std::int32_t index{};
    microbatch_id microbatch{};

    [[nodiscard]] constexpr auto operator<=>(const buffer_id&) const = default;
};

enum class message_kind : std::uint8_t {
    boundary,          ///< from stage `index` to stage `index` + 1: activation, conditioning, relayed skips
    boundary_gradient, ///< from stage `index` + 1 to stage `index`: their gradients
    skip,              ///< skip edge `index`, direct
    skip_gradient,     ///< gradient of skip edge `index`, direct
    gradient_share,    ///< between replicas: shares of the gradients of stage `index`, to the replica that sums them
    gradient_sum,      ///< between replicas: the sums of those shares, back
    weight_share,      ///< between replicas: new weights, from the replica that made or received them
    encoding,          ///< from frozen task `index` to task `microbatch` of another rank: `paused`
    encoded,           ///< from frozen task `index` to rank `microbatch`, which reads its `result` a step later
    prediction,        ///< output of a preview, from the last stage to the first
};

/// Whether the message carries what frozen tasks make; then `index` and `microbatch` are numbers of tasks and ranks.
[[nodiscard]] constexpr bool is_of_frozen_task(message_kind kind) noexcept {
    return kind == message_kind::encoding || kind == message_kind::encoded;
}

/// Whether the message travels between replicas of the pipeline, not along the pipeline.
[[nodiscard]] constexpr bool is_between_replicas(message_kind kind) noexcept {
    return kind == message_kind::gradient_share || kind == message_kind::gradient_sum ||
           kind == message_kind::weight_share;
}

/// What travels between two ranks as one unit.
struct message_id {
    message_kind kind{};
    std::int32_t index{};
    /// For messages between replicas: the number of the replica that adds the shares, or has added them.
    microbatch_id microbatch{};

    [[nodiscard]] constexpr auto operator<=>(const message_id&) const = default;
};

namespace op {

/// Forward of a microbatch, or of its preview (is_preview).
struct forward {
    stage_id stage{};
    microbatch_id microbatch{};
    [[nodiscard]] constexpr auto operator<=>(const forward&) const = default;
};
/// Runs the forward again from the kept stage input, to restore what the plan's recomputation dropped.
struct recompute {
    stage_id stage{};
    microbatch_id microbatch{};
    [[nodiscard]] constexpr auto operator<=>(const recompute&) const = default;
};
struct backward_input {
    stage_id stage{};
    microbatch_id microbatch{};
    /// True when the weight gradient is computed in the same pass.
    bool with_weight{};
    [[nodiscard]] constexpr auto operator<=>(const backward_input&) const = default;
};
struct backward_weight {
    stage_id stage{};
    microbatch_id microbatch{};
    [[nodiscard]] constexpr auto operator<=>(const backward_weight&) const = default;
};
struct send {
    message_id message{};
    device_id peer{};
    [[nodiscard]] constexpr auto operator<=>(const send&) const = default;
};
struct recv {
    message_id message{};
    device_id peer{};
    [[nodiscard]] constexpr auto operator<=>(const recv&) const = default;
};
/// The skip cache takes a reference to the tensor of a skip edge whose two ends are on this device.
struct stash {
    edge_id edge{};
    microbatch_id microbatch{};
    [[nodiscard]] constexpr auto operator<=>(const stash&) const = default;
};
/// Runs one of this device's frozen tasks (plan::frozen_tasks) on samples of the next step.
struct encode {
    int task{}; ///< its position among them
    [[nodiscard]] constexpr auto operator<=>(const encode&) const = default;
};
/// Keeps the result of a frozen task, made here or on another rank, for the next step.
struct keep {
    int task{}; ///< its number among the tasks of all devices (frozen_flow)
    [[nodiscard]] constexpr auto operator<=>(const keep&) const = default;
};
struct release {
    buffer_id buffer{};
    [[nodiscard]] constexpr auto operator<=>(const release&) const = default;
};
/// Starts the sum of a stage's weight gradients over the data-parallel replicas. It ends before optimizer_step and
/// overlaps with the instructions in between.
struct all_reduce {
    stage_id stage{};
    [[nodiscard]] constexpr auto operator<=>(const all_reduce&) const = default;
};
struct optimizer_step {
    [[nodiscard]] constexpr auto operator<=>(const optimizer_step&) const = default;
};

} // namespace op

/// One step of a rank's program. Sends and receives start in program order on both sides. The first instruction that
/// reads a received buffer waits for the receive; the release of a sent buffer waits for the send.
using instruction =
    std::variant<op::forward, op::recompute, op::backward_input, op::backward_weight, op::send, op::recv, op::stash,
                 op::encode, op::keep, op::release, op::all_reduce, op::optimizer_step>;

} // namespace pulse
