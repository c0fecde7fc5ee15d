#pragma once

#include <cstdint>

#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/nn/residual_sums.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// The residual block of diffusion UNets (diffusers' ResnetBlock2D), over the input or over the input and a skip:
///
///   a1 = silu(norm1(x, skip));  h = conv1(a1) + time_emb_proj(c);  a2 = silu(norm2(h));
///   y  = shortcut(x, skip) + conv2(a2)
///
/// with c the conditioning, already silu(temb) (see time_embedding), and the shortcut a 1x1 convolution when the
/// channels change or there is a skip, else the identity. The concatenation of x and skip is never materialised: norm1
/// and the shortcut read both. The first part ends at h and computes the shortcut.
struct resnet {
    static constexpr bool writes_gradients = true;

    int in_channels{};
    int skip_channels{};
    int out_channels{};
    int height{};
    int width{};
    int groups{};
    int conditioning{}; ///< features of the conditioning; 0 leaves the time projection out
    double epsilon{1e-5};

    [[nodiscard]] constexpr int all_channels() const noexcept { return in_channels + skip_channels; }
    [[nodiscard]] constexpr bool has_shortcut() const noexcept { return all_channels() != out_channels; }
    [[nodiscard]] constexpr std::int64_t pixels() const noexcept { return std::int64_t{height} * width; }

    [[nodiscard]] constexpr group_norm_shape norm1() const noexcept {
        return {in_channels, skip_channels, groups, height * width, epsilon, true};
    }
    [[nodiscard]] constexpr group_norm_shape norm2() const noexcept {
        return {out_channels, 0, groups, height * width, epsilon, true};
    }
    [[nodiscard]] constexpr conv conv1() const noexcept {
        return {.in_channels = all_channels(), .out_channels = out_channels, .height = height, .width = width};
    }
    [[nodiscard]] constexpr conv conv2() const noexcept {
        return {.in_channels = out_channels, .out_channels = out_channels, .height = height, .width = width};
    }
    [[nodiscard]] constexpr conv shortcut() const noexcept {
        return {.in_channels = in_channels,
                .skip_channels = skip_channels,
                .out_channels = out_channels,
                .height = height,
                .width = width,
                .kernel = 1,
                .pad_before = 0,
                .pad_after = 0};
    }
    [[nodiscard]] constexpr linear time_projection() const noexcept { return {conditioning, out_channels}; }

    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (in_channels <= 0 || skip_channels < 0 || out_channels <= 0 || height <= 0 || width <= 0 || groups <= 0 ||
            conditioning < 0) {
            return flaw::size;
        }
        return all_channels() % groups != 0 || out_channels % groups != 0 ? flaw::groups : flaw::none;
    }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {in_channels, height, width}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return {out_channels, height, width}; }

    using whole = resnet;
    struct first_half;
    struct second_half;
    [[nodiscard]] constexpr int parts() const noexcept { return 2; }
    [[nodiscard]] constexpr sample_dims open() const noexcept { return output(); }
    [[nodiscard]] constexpr bool makes_residual() const noexcept { return has_shortcut() || skip_channels != 0; }
    template <class Use>
    constexpr void use_part(int k, const Use& use) const;
};

/// First part: up to h.
struct resnet::first_half : resnet {
    struct pieces {
        weight_piece norm, conv, time, shortcut;
        saved_piece active; ///< a1
        statistics_piece statistics;
        deferred_piece projected_gradient; ///< gradient of h, summed over pixels
        workspace_piece projected;
        workspace_piece active_gradient;
        workspace_piece nobody; ///< scratch for an input gradient that nobody reads
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        if (skip_channels != 0) { d.reads_skip({skip_channels, height, width}); }
        d.reads_conditioning(conditioning);
        p.norm = d.norm("norm1", all_channels());
        p.conv = d.conv("conv1", conv1().window());
        if (conditioning != 0) { p.time = d.linear("time_emb_proj", 1, time_projection().matrix()); }
        if (makes_residual()) { p.shortcut = d.conv("conv_shortcut", shortcut().window()); }
        d.save(all_channels() * pixels(), p.active);
        d.statistics(2 * std::int64_t{groups}, p.statistics);
        if (conditioning != 0) {
            d.defer(out_channels, p.projected_gradient);
            d.work(out_channels, p.projected);
            d.work_again();
        }
        d.work(all_channels() * pixels(), p.active_gradient);
        d.work(in_channels * pixels(), p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.group_norm(norm1(), f.batch, f.input, f.skip, f[p.norm], f.bias(p.norm), f[p.active], f[p.statistics]);
        if (conditioning != 0) {
            time_projection().apply(on, f.batch, f.conditioning, f[p.time], f[p.projected]);
            const conv2d_shape window = conv1().window();
            conv2d_per_sample(on, window, f.batch, f[p.active], f[p.conv], f[p.conv] + window.weight_elements(),
                              f[p.projected], f.output);
        } else {
            conv1().apply(on, f.batch, f[p.active], f[p.conv], f.output, into::write);
        }
        if (makes_residual()) {
            shortcut().apply(on, f.batch, f.input, f.skip, f[p.shortcut], f.made_residual, into::write);
        }
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        if (conditioning != 0) {
            on.sum_pixels(f.batch, height * width, out_channels, f.output_gradient, f[p.projected_gradient]);
            on.linear_backward_input(time_projection().matrix(), f.batch, f[p.projected_gradient], f[p.time],
                                     f.conditioning_gradient, into::add);
        }
        on.conv2d_backward_input(conv1().window(), f.batch, f.output_gradient, f[p.conv], f[p.active_gradient],
                                 into::write);

        // The residual's gradient is written first and the norm adds to it, except with a skip, whose gradient the norm
        // always writes.
        const bool wanted = f.input_gradient != nullptr;
        auto* const target = wanted ? f.input_gradient : f[p.nobody];
        const bool residual_first = skip_channels == 0 && wanted;
        const auto norm_backward = [&](auto... how) {
            on.group_norm_backward(norm1(), f.batch, f.input, f.skip, f[p.norm], f.bias(p.norm), f[p.statistics],
                                   f[p.active_gradient], target, f.skip_gradient, f.gradient(p.norm),
                                   f.bias_gradient(p.norm), how...);
        };
        if (residual_first && makes_residual()) {
            on.conv2d_backward_input(shortcut().window(), f.batch, f.residual_gradient, f[p.shortcut], target,
                                     into::write);
            norm_backward(into::add);
        } else {
            norm_backward_onto(on, f.batch * elements(input()), residual_first ? f.residual_gradient : nullptr, target,
                               norm_backward);
        }
        if (skip_channels != 0) {
            on.conv2d_pair_backward_input(shortcut().window(), skip_channels, f.batch, f.residual_gradient,
                                          f[p.shortcut], target, f.skip_gradient, into::add);
        }
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        conv1().apply_backward_weight(on, f.batch, f[p.active], f.output_gradient, f.gradient(p.conv));
        if (conditioning != 0) {
            time_projection().apply_backward_weight(on, f.batch, f.conditioning, f[p.projected_gradient],
                                                    f.gradient(p.time));
        }
        if (makes_residual()) {
            shortcut().apply_backward_weight(on, f.batch, f.input, f.skip, f.residual_gradient, f.gradient(p.shortcut));
        }
    }
};

/// Second part: from h to y. If the block has a shortcut, the output already holds it, and conv2 adds to it.
struct resnet::second_half : resnet {
    [[nodiscard]] constexpr sample_dims input() const noexcept { return output(); }

    struct pieces {
        weight_piece norm, conv;
        saved_piece active; ///< a2
        statistics_piece statistics;
        workspace_piece active_gradient;
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.norm = d.norm("norm2", out_channels);
        p.conv = d.conv("conv2", conv2().window());
        d.save(out_channels * pixels(), p.active);
        d.statistics(2 * std::int64_t{groups}, p.statistics);
        d.work(out_channels * pixels(), p.active_gradient);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.group_norm(norm2(), f.batch, f.input, nullptr, f[p.norm], f.bias(p.norm), f[p.active], f[p.statistics]);
        if (makes_residual()) { return conv2().apply(on, f.batch, f[p.active], f[p.conv], f.output, into::add); }
        const conv2d_shape window = conv2().window();
        conv2d_onto(on, window, f.batch, f[p.active], f[p.conv], f[p.conv] + window.weight_elements(), f.residual,
                    f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.conv2d_backward_input(conv2().window(), f.batch, f.output_gradient, f[p.conv], f[p.active_gradient],
                                 into::write);
        on.group_norm_backward(norm2(), f.batch, f.input, nullptr, f[p.norm], f.bias(p.norm), f[p.statistics],
                               f[p.active_gradient], f.input_gradient, nullptr, f.gradient(p.norm),
                               f.bias_gradient(p.norm), into::write);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        conv2().apply_backward_weight(on, f.batch, f[p.active], f.output_gradient, f.gradient(p.conv));
    }
};

template <class Use>
constexpr void resnet::use_part(int k, const Use& use) const {
    if (k == 0) {
        use("", first_half{*this});
    } else {
        use("", second_half{*this});
    }
}

} // namespace pulse::nn
