#pragma once

#include <algorithm>
#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// The beginning of U-ViT: patches of the image become tokens; the time, and the class where there are classes, are
/// tokens before them, and every position has a learned vector. Parameters: patch_embed.proj, label_emb, pos_embed.
///
/// The class's token comes first. The token of the time is the sinusoid of the timestep, cosines first. Facts: the
/// class. Saves nothing.
struct vit_embed {
    int channels{};
    int size{}; ///< height and width of the image
    int patch{};
    int width{};
    int classes{}; ///< 0: there is no class token

    [[nodiscard]] constexpr int patches() const noexcept { return (size / patch) * (size / patch); }
    /// Tokens before those of the patches.
    [[nodiscard]] constexpr int leading() const noexcept { return classes != 0 ? 2 : 1; }
    [[nodiscard]] constexpr int tokens() const noexcept { return patches() + leading(); }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (channels <= 0 || size <= 0 || patch <= 0 || width <= 0 || classes < 0) { return flaw::size; }
        if (size % patch != 0) { return flaw::window; }
        return width % 2 != 0 ? flaw::features : flaw::none;
    }
    [[nodiscard]] constexpr std::int64_t states() const noexcept { return std::int64_t{tokens()} * width; }
    [[nodiscard]] constexpr int timestep_features() const noexcept { return width; }
    [[nodiscard]] constexpr std::int64_t fact_elements() const noexcept { return classes != 0 ? 1 : 0; }
    [[nodiscard]] constexpr embedding_shape labels() const noexcept { return {classes, width}; }
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
    constexpr void describe(Description& d, const label&) const {
        d.conv("patch_embed.proj", patches(), channels, width, patch);
        if (classes != 0) { d.parameter("label_emb.weight", {classes, width}); }
        d.parameter("pos_embed", {1, tokens(), width});
        d.keep(elements(input()));
    }

    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept { return 0; }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept { return 0; }
    /// Tokens of the patches, and of the time or the class, before they lie next to each other.
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept { return states(); }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        using T = typename B::scalar;
        slices<T> workspace{f.workspace, f.batch};
        T* const of_patches = workspace.take(patch_states());
        T* const one_token = workspace.take(width);
        T* const time = f.output + (leading() - 1) * width;
        projection().apply(on, f.batch, f.input, f.parameters, of_patches, into::write);
        on.copy_rows(f.batch, patch_states(), of_patches, patch_states(), time + width, states());
        on.sinusoid(f.batch, width, true, 0.0, f.timesteps, one_token);
        on.copy_rows(f.batch, width, one_token, width, time, states());
        if (classes != 0) {
            on.embedding(labels(), f.batch, f.facts, f.parameters + projection_elements(), one_token);
            on.copy_rows(f.batch, width, one_token, width, f.output, states());
        }
        on.add_per_sample(1, f.batch, static_cast<int>(states()), f.parameters + positions_at(), f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        if (f.input_gradient == nullptr) { return; }
        gather(on, f);
        on.conv2d_backward_input(projection().window(), f.batch, f.workspace, f.parameters, f.input_gradient,
                                 into::write);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        gather(on, f);
        projection().apply_backward_weight(on, f.batch, f.input, f.workspace, f.parameter_gradients);
        if (classes != 0) {
            on.copy_rows(f.batch, width, f.output_gradient, states(), f.workspace, width);
            on.embedding_backward_weight(labels(), f.batch, f.facts, f.workspace,
                                         f.parameter_gradients + projection_elements());
        }
        on.sum_rows(f.batch, states(), f.output_gradient, f.parameter_gradients + positions_at());
    }

private:
    [[nodiscard]] constexpr std::int64_t patch_states() const noexcept { return std::int64_t{patches()} * width; }
    [[nodiscard]] constexpr std::int64_t projection_elements() const noexcept {
        return projection().window().weight_elements() + width;
    }
    [[nodiscard]] constexpr std::int64_t positions_at() const noexcept {
        return projection_elements() + std::int64_t{classes} * width;
    }
    /// The gradient of the patches' tokens, next to each other.
    template <backend B>
    void gather(B& on, const backend_frame<B>& f) const {
        on.copy_rows(f.batch, patch_states(), f.output_gradient + leading() * width, states(), f.workspace, patch_states());
    }
};

/// The end of U-ViT: norm, decoder_pred, the tokens of patches become an image, and a 3x3 convolution (final_layer) if
/// there is one.
///
/// Saves the normed tokens and, with a convolution, its input; keeps the statistics; defers the gradient of
/// decoder_pred's output.
struct vit_head {
    vit_embed embed{};
    bool convolves{};

    [[nodiscard]] constexpr linear prediction() const noexcept {
        return {embed.width, embed.patch * embed.patch * embed.channels};
    }
    [[nodiscard]] constexpr patch_shape pieces() const noexcept {
        const int grid = embed.size / embed.patch;
        return {grid, grid, embed.patch, embed.channels, embed.leading()};
    }
    [[nodiscard]] constexpr conv last() const noexcept {
        return {
            .in_channels = embed.channels, .out_channels = embed.channels, .height = embed.size, .width = embed.size};
    }

    [[nodiscard]] constexpr flaw defect() const noexcept { return embed.defect(); }
    [[nodiscard]] constexpr extent input() const noexcept { return embed.output(); }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return embed.input(); }
    [[nodiscard]] constexpr extent context() const noexcept { return {}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    /// Every token goes through decoder_pred, those that are no patch too.
    template <class Description>
    constexpr void describe(Description& d, const label&) const {
        d.norm("norm", embed.width);
        d.linear("decoder_pred", embed.tokens(), embed.width, embed.patch * embed.patch * embed.channels);
        d.keep(elements(input()));
        d.keep(elements(input()));
        if (convolves) {
            d.conv("final_layer", std::int64_t{embed.size} * embed.size, embed.channels, embed.channels, 3);
            d.keep(elements(output()));
        }
    }

    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept {
        return embed.states() + (convolves ? elements(output()) : 0);
    }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept {
        return 2 * std::int64_t{embed.tokens()};
    }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept { return predicted(); }
    /// Forward, decoder_pred's output; backward, the gradient of the normed tokens, and behind it that of the image,
    /// then that of the input where nobody reads it.
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept {
        const std::int64_t image = convolves ? elements(output()) : 0;
        return std::max(predicted(), embed.states() + std::max(embed.states(), image));
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        const auto w = weights(f.parameters);
        const auto kept = saved(f);
        on.layer_norm(norm(), rows(f.batch), f.input, w.norm, w.norm + embed.width, kept.normal, kept.statistics);
        prediction().apply(on, rows(f.batch), kept.normal, w.prediction, f.workspace);
        on.patches_to_image(pieces(), f.batch, f.workspace, convolves ? kept.image : f.output);
        if (convolves) { last().apply(on, f.batch, kept.image, w.last, f.output, into::write); }
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        using T = typename B::scalar;
        const auto w = weights(f.parameters);
        const auto dw = weights(f.parameter_gradients);
        const auto kept = saved(f);
        slices<T> workspace{f.workspace, f.batch};
        T* const normal_gradient = workspace.take(embed.states());
        T* const behind = workspace.take(0);
        if (convolves) {
            on.conv2d_backward_input(last().window(), f.batch, f.output_gradient, w.last, behind, into::write);
        }
        on.image_to_patches(pieces(), f.batch, convolves ? behind : f.output_gradient, f.deferred);
        on.linear_backward_input(prediction().matrix(), rows(f.batch), f.deferred, w.prediction, normal_gradient,
                                 into::write);
        on.layer_norm_backward(norm(), rows(f.batch), f.input, w.norm, kept.statistics, normal_gradient,
                               f.input_gradient != nullptr ? f.input_gradient : behind, dw.norm, dw.norm + embed.width,
                               into::write);
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        const auto dw = weights(f.parameter_gradients);
        const auto kept = saved(f);
        prediction().apply_backward_weight(on, rows(f.batch), kept.normal, f.deferred, dw.prediction);
        if (convolves) { last().apply_backward_weight(on, f.batch, kept.image, f.output_gradient, dw.last); }
    }

private:
    template <class T>
    struct weight_pieces {
        T* norm;
        T* prediction;
        T* last;
    };
    template <class T, class A>
    struct saved_pieces {
        T* normal;
        T* image;
        A* statistics;
    };

    [[nodiscard]] constexpr layer_norm_shape norm() const noexcept { return {embed.width, 1e-5}; }
    [[nodiscard]] constexpr std::int64_t rows(int batch) const noexcept { return std::int64_t{batch} * embed.tokens(); }
    [[nodiscard]] constexpr std::int64_t predicted() const noexcept {
        return std::int64_t{embed.tokens()} * prediction().out_features;
    }
    template <class T>
    [[nodiscard]] constexpr weight_pieces<T> weights(T* begin) const noexcept {
        slices<T> all{begin};
        return {.norm = all.take(2 * std::int64_t{embed.width}),
                .prediction = all.take(prediction().weight_elements() + prediction().out_features),
                .last = all.take(0)};
    }
    template <class T, class A>
    [[nodiscard]] constexpr saved_pieces<T, A> saved(const layer_frame<T, A>& f) const noexcept {
        slices<T> all{f.saved, f.batch};
        return {.normal = all.take(embed.states()), .image = all.take(0), .statistics = f.statistics};
    }
};

} // namespace pulse::nn
