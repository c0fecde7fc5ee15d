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
    /// Held from F to the last backward pass, besides the layer's input, skip input and output (each is the
    /// `output_bytes` of the layer that made it).
    std::int64_t saved_bytes{};
    /// The main activation after this layer. A cut there sends sent_bytes().
    std::int64_t output_bytes{};
    /// Held from B to W when the backward is split, besides the gradient of the output.
    std::int64_t deferred_bytes{};
    /// Scratch of one pass; layers on one device share it.
    std::int64_t workspace_bytes{};
    /// Weights that are not trained, besides parameter_bytes: no gradient and no optimizer state.
    std::int64_t frozen_parameter_bytes{};
    /// Of output_bytes, at the end, what no gradient goes back of. Where that is all, the layer runs forward only.
    std::int64_t frozen_output_bytes{};
    /// The residual that is open behind this part of a layer: a cut there sends it behind the output, and its gradient
    /// behind that of the output.
    std::int64_t open_bytes{};
    /// Floats of the second moments of its parameters where they are factored (Adafactor).
    std::int64_t factored_elements{};

    /// Bytes of the gradient of the output.
    [[nodiscard]] constexpr std::int64_t gradient_bytes() const noexcept { return output_bytes - frozen_output_bytes; }
    /// What a cut after this layer sends, and what comes back, without the conditioning.
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

/// A skip edge with the bytes of its tensor for one microbatch; its gradient has the same size.
struct skip_cost {
    int from{};
    int to{};
    std::int64_t bytes{};

    [[nodiscard]] constexpr bool operator==(const skip_cost&) const = default;
};

/// A backbone in a table of several (join_costs): where it begins, and those fields of its own table that a table has
/// once.
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

/// Seconds and bytes of every layer of a model on one device: what a profile measures and a partition reads.
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
    /// Of those, what no gradient goes back of: text states of an encoder that is not trained.
    std::int64_t frozen_conditioning_bytes{};
    /// Input of layer 0 for one microbatch.
    std::int64_t input_bytes{};
    /// Rate at which the device's optimizer was measured to move what it reads and writes of the parameters; 0: it was
    /// not measured.
    double optimizer_gb_per_s{};
    /// What runs beside the layers and is not trained.
    std::vector<frozen_component> frozen{};
    /// Of several backbones: those behind the first, ascending by first layer.
    std::vector<chain_costs> further_chains{};

    /// The backbone that a layer is of.
    [[nodiscard]] constexpr chain_costs chain_of(int layer) const noexcept {
        chain_costs found{0, conditioning_bytes, frozen_conditioning_bytes, input_bytes};
        for (const chain_costs& chain : further_chains) {
            if (chain.first_layer <= layer) { found = chain; }
        }
        return found;
    }
    /// Gradient of the conditioning that every boundary sends back with that of the activation.
    [[nodiscard]] constexpr std::int64_t conditioning_gradient_bytes() const noexcept {
        return conditioning_bytes - frozen_conditioning_bytes;
    }
    /// Bytes of the gradient of a skip tensor: of what its source makes that has one.
    [[nodiscard]] constexpr std::int64_t gradient_bytes(const skip_cost& edge) const noexcept {
        const layer_cost& source = layers[static_cast<std::size_t>(edge.from)];
        if (source.forward_only() || edge.bytes < source.frozen_output_bytes) { return 0; }
        return edge.bytes - source.frozen_output_bytes;
    }
    [[nodiscard]] constexpr bool operator==(const cost_table&) const = default;
};

} // namespace pulse
