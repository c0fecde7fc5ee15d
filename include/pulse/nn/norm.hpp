#pragma once

#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// GroupNorm (Wu and He 2018) with an affine per channel, and SiLU in the same pass if asked.
///
/// Parameters: weight [channels], bias [channels]; their gradients are complete after backward_input. Keeps
/// the statistics: 2 per group.
struct group_norm {
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
    [[nodiscard]] constexpr extent input() const noexcept { return {channels, height, width}; }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return input(); }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }
    [[nodiscard]] constexpr parameter_list parameters(const label& name) const {
        parameter_list list;
        list.add_pair(name, {channels});
        return list;
    }
    [[nodiscard]] constexpr double forward_flops() const noexcept { return 0.0; }
    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept { return 0; }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept { return 2 * std::int64_t{groups}; }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept { return 0; }
    /// The affine gradients come with the input's gradient, which needs a place even where nobody reads it.
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept { return elements(input()); }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        on.group_norm(norm(), f.batch, f.input, nullptr, f.parameters, f.parameters + channels, f.output, f.statistics);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f.workspace;
        on.group_norm_backward(norm(), f.batch, f.input, nullptr, f.parameters, f.parameters + channels, f.statistics,
                               f.output_gradient, target, nullptr, f.parameter_gradients,
                               f.parameter_gradients + channels, into::write);
    }
    template <backend B>
    void backward_weight(B&, const backend_frame<B>&) const {}
};

/// GroupNorm, SiLU and a 3x3 convolution: the end of a UNet (diffusers' conv_norm_out, conv_act, conv_out).
///
/// Parameters: `norm_name`.weight, .bias [in], then the layer's own weight [out][in][3][3] and bias [out]. Saves the
/// activated input, and keeps the statistics.
struct norm_conv {
    label norm_name{};
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
    [[nodiscard]] constexpr extent input() const noexcept { return {in_channels, height, width}; }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return core().output(); }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }
    [[nodiscard]] constexpr parameter_list parameters(const label& name) const {
        parameter_list list;
        list.add_pair(norm_name, {in_channels});
        list.add_pair(name, {out_channels, in_channels, 3, 3});
        return list;
    }
    [[nodiscard]] constexpr double forward_flops() const noexcept { return core().forward_flops(); }
    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept { return elements(input()); }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept { return norm().statistics_elements(); }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept { return 0; }
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept { return 2 * elements(input()); }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        on.group_norm(norm().norm(), f.batch, f.input, nullptr, f.parameters, f.parameters + in_channels, f.saved,
                      f.statistics);
        core().apply(on, f.batch, f.saved, conv_of(f.parameters), f.output, into::write);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        using T = typename B::scalar;
        slices<T> workspace{f.workspace, f.batch};
        T* const active_gradient = workspace.take(elements(input()));
        T* const nobody = workspace.take(elements(input()));
        on.conv2d_backward_input(core().window(), f.batch, f.output_gradient, conv_of(f.parameters), active_gradient,
                                 into::write);
        on.group_norm_backward(norm().norm(), f.batch, f.input, nullptr, f.parameters, f.parameters + in_channels,
                               f.statistics, active_gradient, f.input_gradient != nullptr ? f.input_gradient : nobody,
                               nullptr, f.parameter_gradients, f.parameter_gradients + in_channels, into::write);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        core().apply_backward_weight(on, f.batch, f.saved, f.output_gradient, conv_of(f.parameter_gradients));
    }

private:
    template <class T>
    [[nodiscard]] constexpr T* conv_of(T* parameters) const noexcept {
        return parameters + 2 * in_channels;
    }
};

} // namespace pulse::nn
