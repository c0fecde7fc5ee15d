#pragma once

#include <algorithm>
#include <cstdint>

#include <pulse/model/condition.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// First layer of U-ViT: the patches of the image become tokens, after a time token and, with classes, a class token;
/// each token gets a learned position vector added. The vectors are resampled for another grid of patches than theirs
/// (resample_shape).
///
/// The class token comes first. The time token is the sinusoid of the timestep, cosines first. Facts: the class.
struct vit_embed {
    static constexpr bool writes_gradients = true;

    int channels{};
    int rows{};
    int columns{}; ///< of patches
    int patch{};
    int width{};
    int grid{};    ///< rows, and columns, of patches with learned positions
    int classes{}; ///< 0: there is no class token

    [[nodiscard]] constexpr int image_step() const noexcept { return patch; }
    [[nodiscard]] constexpr int patches() const noexcept { return rows * columns; }
    /// Tokens before the patch tokens.
    [[nodiscard]] constexpr int leading() const noexcept { return classes != 0 ? 2 : 1; }
    [[nodiscard]] constexpr int tokens() const noexcept { return patches() + leading(); }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (channels <= 0 || rows <= 0 || columns <= 0 || patch <= 0 || width <= 0 || grid <= 0 || classes < 0) {
            return flaw::size;
        }
        return width % 2 != 0 ? flaw::features : flaw::none;
    }
    [[nodiscard]] constexpr std::int64_t states() const noexcept { return std::int64_t{tokens()} * width; }
    [[nodiscard]] constexpr embedding_shape labels() const noexcept { return {classes, width}; }
    [[nodiscard]] constexpr conv projection() const noexcept {
        return {.in_channels = channels,
                .out_channels = width,
                .height = rows * patch,
                .width = columns * patch,
                .kernel = patch,
                .stride = patch,
                .pad_before = 0,
                .pad_after = 0};
    }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {channels, rows * patch, columns * patch}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return {tokens(), width, 0}; }

    struct pieces {
        weight_piece projection, labels, positions;
        workspace_piece of_patches; ///< patch tokens, or their gradients, before they are copied next to the others
        workspace_piece one_token;  ///< the same for the time or class token
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        d.reads_timesteps();
        if (classes != 0) { d.reads({.kind = condition_kind::class_label, .classes = classes}); }
        p.projection = d.conv("/patch_embed.proj", projection().window());
        if (classes != 0) { p.labels = d.weight("/label_emb", {classes, width}, false); }
        p.positions = d.vectors("/pos_embed", {1, positions().from_tokens(), width});
        d.work(patch_states(), p.of_patches);
        d.work(std::int64_t{leading()} * width, p.one_token);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        auto* const time = f.output + (leading() - 1) * width;
        projection().apply(on, f.batch, f.input, f[p.projection], f[p.of_patches], into::write);
        on.copy_rows(f.batch, patch_states(), f[p.of_patches], patch_states(), time + width, states());
        on.sinusoid(f.batch, width, true, 0.0, f.timesteps, f[p.one_token]);
        on.copy_rows(f.batch, width, f[p.one_token], width, time, states());
        if (classes != 0) {
            on.embedding(labels(), f.batch, f.facts, f[p.labels], f[p.one_token]);
            on.copy_rows(f.batch, width, f[p.one_token], width, f.output, states());
        }
        if (moved()) {
            on.add_resampled(positions(), f.batch, f[p.positions], f.output);
        } else {
            on.add_per_sample(1, f.batch, static_cast<int>(states()), f[p.positions], f.output);
        }
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        if (f.input_gradient == nullptr) { return; }
        gather(on, f, f[p.of_patches]);
        on.conv2d_backward_input(projection().window(), f.batch, f[p.of_patches], f[p.projection], f.input_gradient,
                                 into::write);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        gather(on, f, f[p.of_patches]);
        projection().apply_backward_weight(on, f.batch, f.input, f[p.of_patches], f.gradient(p.projection));
        if (classes != 0) {
            on.copy_rows(f.batch, width, f.output_gradient, states(), f[p.one_token], width);
            on.embedding_backward_weight(labels(), f.batch, f.facts, f[p.one_token], f.gradient(p.labels));
        }
        if (moved()) {
            on.resampled_sums(positions(), f.batch, f.output_gradient, f.gradient(p.positions));
        } else {
            on.sum_rows(f.batch, states(), f.output_gradient, f.gradient(p.positions));
        }
    }

    [[nodiscard]] constexpr resample_shape positions() const noexcept {
        return {grid, grid, rows, columns, width, leading()};
    }

private:
    [[nodiscard]] constexpr bool moved() const noexcept { return rows != grid || columns != grid; }
    [[nodiscard]] constexpr std::int64_t patch_states() const noexcept { return std::int64_t{patches()} * width; }
    /// Gathers the gradients of the patch tokens, which are not contiguous across samples.
    template <backend B>
    void gather(B& on, const backend_frame<B>& f, typename B::scalar* to) const {
        on.copy_rows(f.batch, patch_states(), f.output_gradient + leading() * width, states(), to, patch_states());
    }
};

/// Last layer of U-ViT: norm, decoder_pred, patch tokens to an image, and an optional 3x3 convolution (final_layer).
///
/// Every token passes through decoder_pred, including the time and class tokens.
struct vit_head {
    static constexpr bool writes_gradients = true;

    vit_embed embed{};
    bool convolves{};

    [[nodiscard]] constexpr linear prediction() const noexcept {
        return {embed.width, embed.patch * embed.patch * embed.channels};
    }
    [[nodiscard]] constexpr patch_shape patches() const noexcept {
        return {embed.rows, embed.columns, embed.patch, embed.channels, embed.leading()};
    }
    [[nodiscard]] constexpr conv last() const noexcept {
        return {.in_channels = embed.channels,
                .out_channels = embed.channels,
                .height = embed.rows * embed.patch,
                .width = embed.columns * embed.patch};
    }

    [[nodiscard]] constexpr flaw defect() const noexcept { return embed.defect(); }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return embed.output(); }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return embed.input(); }

    struct pieces {
        weight_piece norm, prediction, last;
        saved_piece normal, image; ///< normed tokens; the convolution's input
        statistics_piece statistics;
        deferred_piece predicted_gradient; ///< of decoder_pred's output
        workspace_piece predicted;
        workspace_piece normal_gradient;
        workspace_piece behind; ///< the image's gradient, then scratch for an input gradient that nobody reads
    };
    constexpr pieces describe(description& d) const {
        const std::int64_t image = convolves ? elements(output()) : 0;
        pieces p{};
        p.norm = d.norm("/norm", embed.width);
        p.prediction = d.linear("/decoder_pred", embed.tokens(), prediction().matrix());
        if (convolves) { p.last = d.conv("/final_layer", last().window()); }
        d.save(embed.states(), p.normal);
        d.save(image, p.image);
        d.statistics(2 * std::int64_t{embed.tokens()}, p.statistics);
        d.defer(predicted(), p.predicted_gradient);
        d.work(predicted(), p.predicted);
        d.work_again();
        d.work(embed.states(), p.normal_gradient);
        d.work(std::max(embed.states(), image), p.behind);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.layer_norm(norm(), rows(f.batch), f.input, f[p.norm], f.bias(p.norm), f[p.normal], f[p.statistics]);
        prediction().apply(on, rows(f.batch), f[p.normal], f[p.prediction], f[p.predicted]);
        on.patches_to_image(patches(), f.batch, f[p.predicted], convolves ? f[p.image] : f.output);
        if (convolves) { last().apply(on, f.batch, f[p.image], f[p.last], f.output, into::write); }
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        if (convolves) {
            on.conv2d_backward_input(last().window(), f.batch, f.output_gradient, f[p.last], f[p.behind], into::write);
        }
        on.image_to_patches(patches(), f.batch, convolves ? f[p.behind] : f.output_gradient, f[p.predicted_gradient]);
        on.linear_backward_input(prediction().matrix(), rows(f.batch), f[p.predicted_gradient], f[p.prediction],
                                 f[p.normal_gradient], into::write);
        on.layer_norm_backward(norm(), rows(f.batch), f.input, f[p.norm], f[p.statistics], f[p.normal_gradient],
                               f.input_gradient != nullptr ? f.input_gradient : f[p.behind], f.gradient(p.norm),
                               f.bias_gradient(p.norm), into::write);
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        prediction().apply_backward_weight(on, rows(f.batch), f[p.normal], f[p.predicted_gradient],
                                           f.gradient(p.prediction));
        if (convolves) { last().apply_backward_weight(on, f.batch, f[p.image], f.output_gradient, f.gradient(p.last)); }
    }

private:
    [[nodiscard]] constexpr layer_norm_shape norm() const noexcept { return {embed.width, 1e-5}; }
    [[nodiscard]] constexpr std::int64_t rows(int batch) const noexcept { return std::int64_t{batch} * embed.tokens(); }
    [[nodiscard]] constexpr std::int64_t predicted() const noexcept {
        return std::int64_t{embed.tokens()} * prediction().out_features;
    }
};

} // namespace pulse::nn
