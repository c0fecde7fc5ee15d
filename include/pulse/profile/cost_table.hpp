#pragma once

#include <cstdint>
#include <vector>

#include <pulse/core/label.hpp>
#include <pulse/profile/frozen_component.hpp>

namespace pulse {

/// What one layer, or one part of a layer, costs on one device, for one microbatch.
struct layer_cost {
    label name{};
    double forward_us{};
    double backward_input_us{};
    double backward_weight_us{};
    std::int64_t parameter_bytes{};
    /// Bytes held from F to the last backward pass, without the layer's input, skip input and output (each is the
    /// `output_bytes` of the layer that made it).
    std::int64_t saved_bytes{};
    /// The main activation after this layer. A cut there sends sent_bytes().
    std::int64_t output_bytes{};
    /// Bytes held from B to W when the backward is split, without the output's gradient.
    std::int64_t deferred_bytes{};
    /// Scratch of one pass; layers on one device share it.
    std::int64_t workspace_bytes{};
    /// Untrained weights, not part of parameter_bytes: they have no gradient and no optimizer state.
    std::int64_t frozen_parameter_bytes{};
    /// The tail of output_bytes that receives no gradient. If it is all of output_bytes, the layer runs forward only.
    std::int64_t frozen_output_bytes{};
    /// The residual that is still open after this part of a layer: a cut there sends it after the output, and returns
    /// its gradient after the output's gradient.
    std::int64_t open_bytes{};
    /// Floats of the factored second moments (Adafactor) of the layer's parameters.
    std::int64_t factored_elements{};

    /// Bytes of the gradient of the output.
    [[nodiscard]] constexpr std::int64_t gradient_bytes() const noexcept { return output_bytes - frozen_output_bytes; }
    /// Bytes that a cut after this layer sends and receives back, without the conditioning.
    [[nodiscard]] constexpr std::int64_t sent_bytes() const noexcept { return output_bytes + open_bytes; }
    [[nodiscard]] constexpr std::int64_t returned_bytes() const noexcept { return gradient_bytes() + open_bytes; }
    [[nodiscard]] constexpr bool forward_only() const noexcept {
        return frozen_output_bytes != 0 && frozen_output_bytes == output_bytes;
    }
    /// F + B + W, in microseconds.
    [[nodiscard]] constexpr double load_us() const noexcept {
        return forward_us + backward_input_us + backward_weight_us;
    }
    [[nodiscard]] constexpr bool operator==(const layer_cost&) const = default;
};

/// A skip edge with the bytes of its tensor for one microbatch; for its gradient see cost_table::gradient_bytes.
struct skip_cost {
    int from{};
    int to{};
    std::int64_t bytes{};

    [[nodiscard]] constexpr bool operator==(const skip_cost&) const = default;
};

/// One backbone of a table that holds several (join_costs): its first layer and its own values of those cost_table
/// fields that exist once per backbone.
struct chain_costs {
    int first_layer{};
    std::int64_t conditioning_bytes{};
    std::int64_t frozen_conditioning_bytes{};
    std::int64_t input_bytes{};

    [[nodiscard]] constexpr std::int64_t conditioning_gradient_bytes() const noexcept {
        return conditioning_bytes - frozen_conditioning_bytes;
    }
    [[nodiscard]] constexpr bool operator==(const chain_costs&) const = default;
};

/// Time (us) and bytes of every layer of a model on one device: a profile measures them, a partitioner reads them.
///
/// The cost of the conditioning module (time embedding) is part of layer 0, because stage 0 runs it.
struct cost_table {
    label model{};
    label device{};
    int microbatch_size{1};
    std::vector<layer_cost> layers{};
    std::vector<skip_cost> skips{};
    /// Conditioning that every boundary relays with the activation, for one microbatch.
    std::int64_t conditioning_bytes{};
    /// The part of conditioning_bytes that receives no gradient: text states of an untrained encoder.
    std::int64_t frozen_conditioning_bytes{};
    /// Input of layer 0 for one microbatch.
    std::int64_t input_bytes{};
    /// Measured memory rate of the device's optimizer over the bytes that it reads and writes for the parameters; 0 if
    /// it was not measured.
    double optimizer_gb_per_s{};
    /// Untrained components that run beside the layers.
    std::vector<frozen_component> frozen{};
    /// The backbones after the first, by ascending first layer; empty for a single backbone.
    std::vector<chain_costs> further_chains{};

    /// The backbone that contains `layer`.
    [[nodiscard]] constexpr chain_costs chain_of(int layer) const noexcept {
        chain_costs found{0, conditioning_bytes, frozen_conditioning_bytes, input_bytes};
        for (const chain_costs& chain : further_chains) {
            if (chain.first_layer <= layer) { found = chain; }
        }
        return found;
    }
    /// Bytes of the conditioning's gradient, which every boundary sends back with the activation's gradient.
    [[nodiscard]] constexpr std::int64_t conditioning_gradient_bytes() const noexcept {
        return conditioning_bytes - frozen_conditioning_bytes;
    }
    /// Bytes of a skip tensor's gradient: the tensor without the frozen output of its source.
    [[nodiscard]] constexpr std::int64_t gradient_bytes(const skip_cost& edge) const noexcept {
        const layer_cost& source = layers[static_cast<std::size_t>(edge.from)];
        if (source.forward_only() || edge.bytes < source.frozen_output_bytes) { return 0; }
        return edge.bytes - source.frozen_output_bytes;
    }
    [[nodiscard]] constexpr bool operator==(const cost_table&) const = default;
};

} // namespace pulse
