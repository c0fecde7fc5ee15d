#pragma once

#include <cstdint>

#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// Square convolution with bias, over the input or the concatenation of input and skip, which is never materialised.
///
/// Parameters: weight [out][in + skip][kernel][kernel], bias [out]. Saves nothing.
struct conv {
    static constexpr bool writes_gradients = true;

    int in_channels{};
    int skip_channels{};
    int out_channels{};
    int height{};
    int width{};
    int kernel{3};
    int stride{1};
    int pad_before{1};
    int pad_after{1};

    [[nodiscard]] constexpr conv2d_shape window() const noexcept {
        return {in_channels + skip_channels, out_channels, height, width, kernel, stride, pad_before, pad_after};
    }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (in_channels <= 0 || skip_channels < 0 || out_channels <= 0 || height <= 0 || width <= 0 || kernel <= 0 ||
            stride <= 0) {
            return flaw::size;
        }
        const int pad = pad_before + pad_after;
        const bool fits = pad_before >= 0 && pad_after >= 0 && height + pad >= kernel && width + pad >= kernel;
        return fits ? flaw::none : flaw::window;
    }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {in_channels, height, width}; }
    [[nodiscard]] constexpr sample_dims skip_input() const noexcept { return {skip_channels, height, width}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept {
        return {out_channels, window().out_height(), window().out_width()};
    }
    /// With a skip the backward pass writes both gradients, so the input's needs scratch even if nobody reads it.
    constexpr weight_piece describe(description& d) const {
        workspace_piece nobody;
        if (skip_channels != 0) {
            d.reads_skip(skip_input());
            d.work(elements(input()), nobody);
        }
        return d.conv("", window());
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, weight_piece p) const {
        apply(on, f.batch, f.input, f.skip, f[p], f.output, into::write);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, weight_piece p) const {
        if (skip_channels != 0) {
            auto* const target = f.input_gradient != nullptr ? f.input_gradient : f.workspace;
            on.conv2d_pair_backward_input(window(), skip_channels, f.batch, f.output_gradient, f[p], target,
                                          f.skip_gradient, into::write);
        } else if (f.input_gradient != nullptr) {
            on.conv2d_backward_input(window(), f.batch, f.output_gradient, f[p], f.input_gradient, into::write);
        }
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, weight_piece p) const {
        apply_backward_weight(on, f.batch, f.input, f.skip, f.output_gradient, f.gradient(p));
    }

    /// The passes over explicit pointers, for blocks that contain a convolution; `weight` is followed by the bias.
    template <backend B, class T>
    void apply(B& on, int batch, const T* x, const T* weight, T* y, into how) const {
        on.conv2d(window(), batch, x, weight, weight + window().weight_elements(), y, how);
    }
    template <backend B, class T>
    void apply_backward_weight(B& on, int batch, const T* x, const T* dy,
                               gradient_place<typename B::accumulator> dweight) const {
        on.conv2d_backward_weight(window(), batch, x, dy, dweight, dweight + window().weight_elements());
    }

    /// The same over the input and, if there is one, the skip.
    template <backend B, class T>
    void apply(B& on, int batch, const T* x, const T* skip, const T* weight, T* y, into how) const {
        if (skip_channels == 0) {
            apply(on, batch, x, weight, y, how);
        } else {
            const T* const bias = weight + window().weight_elements();
            on.conv2d_pair(window(), skip_channels, batch, x, skip, weight, bias, y, how);
        }
    }
    template <backend B, class T>
    void apply_backward_weight(B& on, int batch, const T* x, const T* skip, const T* dy,
                               gradient_place<typename B::accumulator> dweight) const {
        if (skip_channels == 0) {
            apply_backward_weight(on, batch, x, dy, dweight);
        } else {
            on.conv2d_pair_backward_weight(window(), skip_channels, batch, x, skip, dy, dweight,
                                           dweight + window().weight_elements());
        }
    }
};

/// Halves an image by a 3x3 convolution of stride 2 (diffusers' Downsample2D).
///
/// `padding` 1 pads all sides; 0 pads one row below and one column right. Parameters conv.weight, conv.bias.
struct downsample {
    static constexpr bool writes_gradients = true;

    int channels{};
    int height{};
    int width{};
    int padding{1};

    [[nodiscard]] constexpr conv core() const noexcept {
        return {.in_channels = channels,
                .out_channels = channels,
                .height = height,
                .width = width,
                .stride = 2,
                .pad_before = padding,
                .pad_after = 1};
    }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        return padding != 0 && padding != 1 ? flaw::window : core().defect();
    }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return core().input(); }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return core().output(); }
    constexpr weight_piece describe(description& d) const { return d.part("conv", core()); }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, weight_piece p) const {
        core().forward(on, f, p);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, weight_piece p) const {
        core().backward_input(on, f, p);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, weight_piece p) const {
        core().backward_weight(on, f, p);
    }
};

/// Doubles an image by repeating pixels, then a 3x3 convolution (diffusers' Upsample2D).
///
/// Parameters conv.weight, conv.bias. The doubled image is recomputed for the weight gradient: the copy is cheap, and
/// storing it would take four times the input.
struct upsample {
    static constexpr bool writes_gradients = true;

    int channels{};
    int height{};
    int width{};

    [[nodiscard]] constexpr conv core() const noexcept {
        return {.in_channels = channels, .out_channels = channels, .height = 2 * height, .width = 2 * width};
    }
    [[nodiscard]] constexpr flaw defect() const noexcept { return core().defect(); }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {channels, height, width}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return core().output(); }

    struct pieces {
        weight_piece conv;
        workspace_piece doubled; ///< the image, or its gradient
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.conv = d.conv("conv", core().window());
        d.work(elements(core().input()), p.doubled);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.upsample_nearest(f.batch, height, width, channels, f.input, f[p.doubled]);
        core().apply(on, f.batch, f[p.doubled], f[p.conv], f.output, into::write);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        if (f.input_gradient == nullptr) { return; }
        on.conv2d_backward_input(core().window(), f.batch, f.output_gradient, f[p.conv], f[p.doubled], into::write);
        on.upsample_nearest_backward(f.batch, height, width, channels, f[p.doubled], f.input_gradient);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.upsample_nearest(f.batch, height, width, channels, f.input, f[p.doubled]);
        core().apply_backward_weight(on, f.batch, f[p.doubled], f.output_gradient, f.gradient(p.conv));
    }
};

} // namespace pulse::nn
