#pragma once

#include <algorithm>
#include <cstdint>

#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// Turns the patches of an image into tokens.
struct patch_embed {
    static constexpr bool writes_gradients = true;

    int channels{};
    int height{};
    int width{}; ///< of the image
    int patch{};
    int features{}; ///< of a token

    [[nodiscard]] constexpr int rows() const noexcept { return height / patch; }
    [[nodiscard]] constexpr int columns() const noexcept { return width / patch; }
    [[nodiscard]] constexpr int tokens() const noexcept { return rows() * columns(); }
    [[nodiscard]] constexpr std::int64_t states() const noexcept { return std::int64_t{tokens()} * features; }
    [[nodiscard]] constexpr int image_step() const noexcept { return patch; }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (channels <= 0 || height <= 0 || width <= 0 || patch <= 0 || features <= 0) { return flaw::size; }
        return height % patch != 0 || width % patch != 0 ? flaw::window : flaw::none;
    }
    [[nodiscard]] constexpr conv projection() const noexcept {
        return {.in_channels = channels,
                .out_channels = features,
                .height = height,
                .width = width,
                .kernel = patch,
                .stride = patch,
                .pad_before = 0,
                .pad_after = 0};
    }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {channels, height, width}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return {tokens(), features, 0}; }
    constexpr weight_piece describe(description& d) const { return d.part("proj", projection()); }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, weight_piece p) const {
        projection().forward(on, f, p);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, weight_piece p) const {
        projection().backward_input(on, f, p);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, weight_piece p) const {
        projection().backward_weight(on, f, p);
    }
};

/// Last layer of Hunyuan-DiT: norm_out, scaled and shifted by the conditioning, proj_out, and tokens to an image of
/// `out_channels` channels.
struct dit_head {
    static constexpr bool writes_gradients = true;

    patch_embed embed{};
    int out_channels{};

    [[nodiscard]] constexpr flaw defect() const noexcept { return out_channels <= 0 ? flaw::size : embed.defect(); }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return embed.output(); }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return {out_channels, embed.height, embed.width}; }
    [[nodiscard]] constexpr linear modulation() const noexcept { return {embed.features, 2 * embed.features}; }
    [[nodiscard]] constexpr linear prediction() const noexcept {
        return {embed.features, embed.patch * embed.patch * out_channels};
    }
    [[nodiscard]] constexpr patch_shape patches() const noexcept {
        return {embed.rows(), embed.columns(), embed.patch, out_channels, 0};
    }
    [[nodiscard]] constexpr adaptive_norm_shape norm() const noexcept {
        return {embed.features, embed.tokens(), 2 * std::int64_t{embed.features}, 1e-6};
    }

    struct pieces {
        weight_piece modulation, prediction; ///< modulation: the scale's rows, then the shift's
        saved_piece normal, scale;           ///< modulated tokens; scale and shift
        statistics_piece statistics;
        deferred_piece predicted_gradient, scale_gradient; ///< of proj_out's output; of scale and shift
        workspace_piece predicted;
        workspace_piece normal_gradient;
        workspace_piece nobody; ///< scratch for an input gradient that nobody reads
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        d.reads_conditioning(embed.features);
        p.modulation = d.linear("/norm_out.linear", 1, modulation().matrix());
        p.prediction = d.linear("/proj_out", embed.tokens(), prediction().matrix());
        d.save(embed.states(), p.normal);
        d.save(2 * std::int64_t{embed.features}, p.scale);
        d.statistics(2 * std::int64_t{embed.tokens()}, p.statistics);
        d.defer(elements(output()), p.predicted_gradient);
        d.defer(2 * std::int64_t{embed.features}, p.scale_gradient);
        d.work(elements(output()), p.predicted);
        d.work_again();
        d.work(embed.states(), p.normal_gradient, p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        auto* const scale = f[p.scale];
        modulation().apply(on, f.batch, f.conditioning, f[p.modulation], scale);
        on.adaptive_norm(norm(), f.batch, f.input, nullptr, nullptr, scale, scale + embed.features, f[p.normal],
                         f[p.statistics]);
        prediction().apply(on, rows(f.batch), f[p.normal], f[p.prediction], f[p.predicted]);
        on.patches_to_image(patches(), f.batch, f[p.predicted], f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        auto* const scale_gradient = f[p.scale_gradient];
        on.image_to_patches(patches(), f.batch, f.output_gradient, f[p.predicted_gradient]);
        on.linear_backward_input(prediction().matrix(), rows(f.batch), f[p.predicted_gradient], f[p.prediction],
                                 f[p.normal_gradient], into::write);
        on.adaptive_norm_backward(norm(), f.batch, f.input, nullptr, nullptr, f[p.scale], f[p.statistics],
                                  f[p.normal_gradient], f.input_gradient != nullptr ? f.input_gradient : f[p.nobody],
                                  nullptr, nullptr, scale_gradient, scale_gradient + embed.features, into::write);
        on.linear_backward_input(modulation().matrix(), f.batch, scale_gradient, f[p.modulation],
                                 f.conditioning_gradient, into::add);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        modulation().apply_backward_weight(on, f.batch, f.conditioning, f[p.scale_gradient], f.gradient(p.modulation));
        prediction().apply_backward_weight(on, rows(f.batch), f[p.normal], f[p.predicted_gradient],
                                           f.gradient(p.prediction));
    }

private:
    [[nodiscard]] constexpr std::int64_t rows(int batch) const noexcept { return std::int64_t{batch} * embed.tokens(); }
};

} // namespace pulse::nn
