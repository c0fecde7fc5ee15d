#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// The first convolution of a ControlNet's copy, over the sample, plus an embedding of the hint (diffusers' conv_in and
/// ControlNetConditioningEmbedding): eight 3x3 convolutions with SiLU between them, three of which halve the image.
///
/// The hint has 8 times the height and width of the sample; the hints of the whole batch follow its samples. Neither
/// gets a gradient: this is a model's first layer. So B has nothing to do; W backpropagates through the embedding.
struct hinted_conv {
    static constexpr bool writes_gradients = true;

    static constexpr int steps = 8;

    conv sample{};
    int hint_channels{3};

    /// Convolution k of the embedding.
    [[nodiscard]] constexpr conv step(int k) const noexcept {
        const int halved = k == 0 ? 0 : (k - 1) / 2;
        return {.in_channels = k == 0 ? hint_channels : width(k - 1),
                .skip_channels = 0,
                .out_channels = width(k),
                .height = (8 * sample.height) >> halved,
                .width = (8 * sample.width) >> halved,
                .kernel = 3,
                .stride = k == 2 || k == 4 || k == 6 ? 2 : 1,
                .pad_before = 1,
                .pad_after = 1};
    }
    [[nodiscard]] constexpr flaw defect() const noexcept { return hint_channels <= 0 ? flaw::size : sample.defect(); }
    [[nodiscard]] constexpr sample_dims input() const noexcept {
        return {static_cast<int>(elements(sample.input()) + elements(step(0).input())), 0, 0};
    }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return sample.output(); }

    struct pieces {
        weight_piece sample;
        std::array<weight_piece, steps> embedding;
        std::array<saved_piece, steps - 1> before; ///< input of each SiLU
        workspace_piece active;                    ///< its output
        workspace_piece active_gradient, gradient;
    };
    constexpr pieces describe(description& d) const {
        constexpr std::array<std::string_view, steps> names{"conv_in",  "blocks.0", "blocks.1", "blocks.2",
                                                            "blocks.3", "blocks.4", "blocks.5", "conv_out"};
        pieces p{};
        p.sample = d.conv("", sample.window());
        std::int64_t widest = 0;
        for (std::size_t k = 0; k != steps; ++k) {
            const label name = label{"/controlnet_cond_embedding."} + names[k];
            p.embedding[k] = d.conv(name.view(), step(static_cast<int>(k)).window());
            if (k + 1 == steps) { break; }
            d.save(made(static_cast<int>(k)), p.before[k]);
            widest = std::max(widest, made(static_cast<int>(k)));
        }
        d.start_at_zero();
        d.work(widest, p.active, p.active_gradient, p.gradient);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        sample.apply(on, f.batch, f.input, f[p.sample], f.output, into::write);
        const typename B::scalar* from = hint(f);
        for (int k = 0; k + 1 != steps; ++k) {
            const auto i = static_cast<std::size_t>(k);
            step(k).apply(on, f.batch, from, f[p.embedding[i]], f[p.before[i]], into::write);
            on.silu(f.batch * made(k), f[p.before[i]], f[p.active]);
            from = f[p.active];
        }
        step(steps - 1).apply(on, f.batch, from, f[p.embedding[steps - 1]], f.output, into::add);
    }
    template <backend B>
    void backward_input(B&, const backend_frame<B>&, const pieces&) const {}
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        sample.apply_backward_weight(on, f.batch, f.input, f.output_gradient, f.gradient(p.sample));
        const typename B::scalar* dy = f.output_gradient;
        for (int k = steps - 1; k != 0; --k) {
            const auto i = static_cast<std::size_t>(k);
            const std::int64_t n = f.batch * made(k - 1);
            on.silu(n, f[p.before[i - 1]], f[p.active]);
            step(k).apply_backward_weight(on, f.batch, f[p.active], dy, f.gradient(p.embedding[i]));
            on.conv2d_backward_input(step(k).window(), f.batch, dy, f[p.embedding[i]], f[p.active_gradient],
                                     into::write);
            on.silu_backward(n, f[p.before[i - 1]], f[p.active_gradient], f[p.gradient], into::write);
            dy = f[p.gradient];
        }
        step(0).apply_backward_weight(on, f.batch, hint(f), dy, f.gradient(p.embedding[0]));
    }

private:
    [[nodiscard]] constexpr int width(int k) const noexcept {
        constexpr std::array widths{16, 32, 96, 256};
        return k + 1 == steps ? sample.out_channels : widths[static_cast<std::size_t>(k / 2)];
    }
    [[nodiscard]] constexpr std::int64_t made(int k) const noexcept { return elements(step(k).output()); }
    template <class T, class A>
    [[nodiscard]] constexpr const T* hint(const layer_frame<T, A>& f) const noexcept {
        return f.input + f.batch * elements(sample.input());
    }
};

} // namespace pulse::nn
