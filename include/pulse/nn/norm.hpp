#pragma once

#include <cstdint>

#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// GroupNorm (Wu and He 2018) with an affine per channel, and SiLU in the same pass if asked.
///
/// The gradients of its parameters are complete after backward_input.
struct group_norm {
    static constexpr bool writes_gradients = true;

    int channels{};
    int height{};
    int width{};
    int groups{};
    double epsilon{1e-5};
    bool silu{};

    [[nodiscard]] constexpr group_norm_shape norm() const noexcept {
        return {channels, 0, groups, height * width, epsilon, silu};
    }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (channels <= 0 || height <= 0 || width <= 0 || groups <= 0) { return flaw::size; }
        return channels % groups != 0 ? flaw::groups : flaw::none;
    }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {channels, height, width}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return input(); }

    struct pieces {
        weight_piece affine;
        statistics_piece statistics;
        workspace_piece nobody; ///< scratch for the input's gradient, which comes with the affine's even if unwanted
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.affine = d.norm("", channels);
        d.statistics(2 * std::int64_t{groups}, p.statistics);
        d.work(elements(input()), p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.group_norm(norm(), f.batch, f.input, nullptr, f[p.affine], f.bias(p.affine), f.output, f[p.statistics]);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f[p.nobody];
        on.group_norm_backward(norm(), f.batch, f.input, nullptr, f[p.affine], f.bias(p.affine), f[p.statistics],
                               f.output_gradient, target, nullptr, f.gradient(p.affine), f.bias_gradient(p.affine),
                               into::write);
    }
    template <backend B>
    void backward_weight(B&, const backend_frame<B>&, const pieces&) const {}
};

/// GroupNorm, SiLU and a 3x3 convolution: the end of a UNet (diffusers' conv_norm_out, conv_act, conv_out).
/// The convolution has the layer's name.
struct norm_conv {
    static constexpr bool writes_gradients = true;

    int in_channels{};
    int out_channels{};
    int height{};
    int width{};
    int groups{};
    double epsilon{1e-5};

    [[nodiscard]] constexpr group_norm norm() const noexcept {
        return {in_channels, height, width, groups, epsilon, true};
    }
    [[nodiscard]] constexpr conv core() const noexcept {
        return {.in_channels = in_channels, .out_channels = out_channels, .height = height, .width = width};
    }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        return norm().defect() != flaw::none ? norm().defect() : core().defect();
    }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {in_channels, height, width}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return core().output(); }

    struct pieces {
        weight_piece norm, conv;
        saved_piece active;
        statistics_piece statistics;
        workspace_piece active_gradient;
        workspace_piece nobody; ///< scratch for an input gradient that nobody reads
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.norm = d.norm("../conv_norm_out", in_channels);
        p.conv = d.conv("", core().window());
        d.save(elements(input()), p.active);
        d.statistics(2 * std::int64_t{groups}, p.statistics);
        d.work(elements(input()), p.active_gradient, p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.group_norm(norm().norm(), f.batch, f.input, nullptr, f[p.norm], f.bias(p.norm), f[p.active],
                      f[p.statistics]);
        core().apply(on, f.batch, f[p.active], f[p.conv], f.output, into::write);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.conv2d_backward_input(core().window(), f.batch, f.output_gradient, f[p.conv], f[p.active_gradient],
                                 into::write);
        on.group_norm_backward(norm().norm(), f.batch, f.input, nullptr, f[p.norm], f.bias(p.norm), f[p.statistics],
                               f[p.active_gradient], f.input_gradient != nullptr ? f.input_gradient : f[p.nobody],
                               nullptr, f.gradient(p.norm), f.bias_gradient(p.norm), into::write);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        core().apply_backward_weight(on, f.batch, f[p.active], f.output_gradient, f.gradient(p.conv));
    }
};

} // namespace pulse::nn
