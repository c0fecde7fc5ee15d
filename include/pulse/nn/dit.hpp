#pragma once

#include <algorithm>
#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// Patches of an image become tokens. Parameters: <name>.proj. Saves nothing.
struct patch_embed {
    int channels{};
    int size{}; ///< height and width of the image
    int patch{};
    int width{};

    [[nodiscard]] constexpr int grid() const noexcept { return size / patch; }
    [[nodiscard]] constexpr int tokens() const noexcept { return grid() * grid(); }
    [[nodiscard]] constexpr std::int64_t states() const noexcept { return std::int64_t{tokens()} * width; }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (channels <= 0 || size <= 0 || patch <= 0 || width <= 0) { return flaw::size; }
        return size % patch != 0 ? flaw::window : flaw::none;
    }
    [[nodiscard]] constexpr conv projection() const noexcept {
        return {.in_channels = channels,
                .out_channels = width,
                .height = size,
                .width = size,
                .kernel = patch,
                .stride = patch,
                .pad_before = 0,
                .pad_after = 0};
    }
    [[nodiscard]] constexpr extent input() const noexcept { return {channels, size, size}; }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return {tokens(), width, 0}; }
    [[nodiscard]] constexpr extent context() const noexcept { return {}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(name);
        d.conv("proj", tokens(), channels, width, patch);
        d.keep(elements(input()));
    }

    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept { return 0; }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept { return 0; }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept { return 0; }
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept { return 0; }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        projection().forward(on, f);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        projection().backward_input(on, f);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        projection().backward_weight(on, f);
    }
};

/// The end of Hunyuan-DiT: norm_out, scaled and shifted by the conditioning, proj_out, and tokens become an image of
/// `out_channels`. Parameters: norm_out.linear (the scale's rows, then the shift's), proj_out.
///
/// Saves the modulated tokens, scale and shift, and the statistics; defers the gradients of proj_out's output and of
/// scale and shift.
struct dit_head {
    patch_embed embed{};
    int out_channels{};

    [[nodiscard]] constexpr flaw defect() const noexcept { return out_channels <= 0 ? flaw::size : embed.defect(); }
    [[nodiscard]] constexpr extent input() const noexcept { return embed.output(); }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return {out_channels, embed.size, embed.size}; }
    [[nodiscard]] constexpr extent context() const noexcept { return {}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return embed.width; }

    template <class Description>
    constexpr void describe(Description& d, const label&) const {
        d.linear("norm_out.linear", 1, embed.width, 2 * embed.width);
        d.linear("proj_out", embed.tokens(), embed.width, embed.patch * embed.patch * out_channels);
        d.keep(2 * std::int64_t{embed.width}); // SiLU(temb); 1 + scale
        d.keep(3 * elements(input()));         // inputs of the norm, of the scaling and of proj_out
    }

    [[nodiscard]] constexpr linear modulation() const noexcept { return {embed.width, 2 * embed.width}; }
    [[nodiscard]] constexpr linear prediction() const noexcept {
        return {embed.width, embed.patch * embed.patch * out_channels};
    }
    [[nodiscard]] constexpr patch_shape pieces() const noexcept {
        return {embed.grid(), embed.grid(), embed.patch, out_channels, 0};
    }
    [[nodiscard]] constexpr adaptive_norm_shape norm() const noexcept {
        return {embed.width, embed.tokens(), 2 * std::int64_t{embed.width}, 1e-6};
    }

    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept {
        return embed.states() + 2 * std::int64_t{embed.width};
    }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept {
        return 2 * std::int64_t{embed.tokens()};
    }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept {
        return elements(output()) + 2 * std::int64_t{embed.width};
    }
    /// Forward, the image as tokens; backward, a gradient of the tokens and a place for the input's where nobody reads
    /// it.
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept {
        return std::max(elements(output()), 2 * embed.states());
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        const auto* const w = f.parameters;
        const std::int64_t rows = std::int64_t{f.batch} * embed.tokens();
        auto* const scale = scale_in(f.saved, f.batch);
        modulation().apply(on, f.batch, f.conditioning, w, scale);
        on.adaptive_norm(norm(), f.batch, f.input, nullptr, nullptr, scale, scale + embed.width, f.saved, f.statistics);
        prediction().apply(on, rows, f.saved, prediction_of(w), f.workspace);
        on.patches_to_image(pieces(), f.batch, f.workspace, f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        const auto* const w = f.parameters;
        const std::int64_t rows = std::int64_t{f.batch} * embed.tokens();
        auto* const scale_gradient = modulation_in(f.deferred, f.batch);
        auto* const normal_gradient = f.workspace;
        auto* const nobody = f.workspace + f.batch * embed.states();
        on.image_to_patches(pieces(), f.batch, f.output_gradient, f.deferred);
        on.linear_backward_input(prediction().matrix(), rows, f.deferred, prediction_of(w), normal_gradient,
                                 into::write);
        on.adaptive_norm_backward(norm(), f.batch, f.input, nullptr, nullptr, scale_in(f.saved, f.batch), f.statistics,
                                  normal_gradient, f.input_gradient != nullptr ? f.input_gradient : nobody, nullptr,
                                  nullptr, scale_gradient, scale_gradient + embed.width, into::write);
        on.linear_backward_input(modulation().matrix(), f.batch, scale_gradient, w, f.conditioning_gradient, into::add);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        auto* const dw = f.parameter_gradients;
        const std::int64_t rows = std::int64_t{f.batch} * embed.tokens();
        modulation().apply_backward_weight(on, f.batch, f.conditioning, modulation_in(f.deferred, f.batch), dw);
        prediction().apply_backward_weight(on, rows, f.saved, f.deferred, prediction_of(dw));
    }

private:
    template <class T>
    [[nodiscard]] constexpr T* prediction_of(T* weights) const noexcept {
        return weights + modulation().weight_elements() + modulation().out_features;
    }
    template <class T>
    [[nodiscard]] constexpr T* scale_in(T* saved, int batch) const noexcept {
        return saved + batch * embed.states();
    }
    template <class T>
    [[nodiscard]] constexpr T* modulation_in(T* deferred, int batch) const noexcept {
        return deferred + batch * elements(output());
    }
};

} // namespace pulse::nn
