#pragma once

#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// The residual block of diffusion UNets (diffusers' ResnetBlock2D), of the input or of the input and a skip:
///
///   a1 = silu(norm1(x, skip));  h = conv1(a1) + time_emb_proj(c);  a2 = silu(norm2(h));
///   y  = shortcut(x, skip) + conv2(a2)
///
/// with c the conditioning, already silu(temb) (see time_embedding), and the shortcut a 1x1 convolution when the
/// channels change or a skip comes in, else the identity. The concatenation of x and skip is never made: norm1 and the
/// shortcut read both. Parameters, in diffusers' order: norm1, conv1, time_emb_proj, norm2, conv2, conv_shortcut. Saves
/// a1, h and a2; keeps the statistics of both norms; defers dh and its sum over pixels.
struct resnet {
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
    [[nodiscard]] constexpr bool projects_input() const noexcept { return has_shortcut() || skip_channels != 0; }
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
    [[nodiscard]] constexpr extent input() const noexcept { return {in_channels, height, width}; }
    [[nodiscard]] constexpr extent skip_input() const noexcept {
        return skip_channels == 0 ? extent{} : extent{skip_channels, height, width};
    }
    [[nodiscard]] constexpr extent output() const noexcept { return {out_channels, height, width}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return conditioning; }

    [[nodiscard]] constexpr parameter_list parameters(const label& name) const {
        parameter_list list;
        list.add_pair(name + ".norm1", {all_channels()});
        list.add_pair(name + ".conv1", {out_channels, all_channels(), 3, 3});
        if (conditioning != 0) { list.add_pair(name + ".time_emb_proj", {out_channels, conditioning}); }
        list.add_pair(name + ".norm2", {out_channels});
        list.add_pair(name + ".conv2", {out_channels, out_channels, 3, 3});
        if (projects_input()) { list.add_pair(name + ".conv_shortcut", {out_channels, all_channels(), 1, 1}); }
        return list;
    }
    [[nodiscard]] constexpr double forward_flops() const noexcept {
        return conv1().forward_flops() + conv2().forward_flops() +
               (conditioning != 0 ? time_projection().forward_flops() : 0.0) +
               (projects_input() ? shortcut().forward_flops() : 0.0);
    }
    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept {
        return (all_channels() + 2 * std::int64_t{out_channels}) * pixels();
    }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept { return 4 * std::int64_t{groups}; }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept {
        return out_channels * pixels() + (conditioning != 0 ? out_channels : 0);
    }
    /// A gradient of a1 or a2, and a place for the input's gradient where nobody reads it.
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept {
        return (widest() + in_channels) * pixels();
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        const auto w = weights(f.parameters);
        const auto kept = saved(f);
        on.group_norm(norm1(), f.batch, f.input, f.skip, w.norm1, w.norm1 + all_channels(), kept.active1,
                      kept.statistics1);
        conv1().apply(on, f.batch, kept.active1, w.conv1, kept.hidden, into::write);
        if (conditioning != 0) {
            time_projection().apply(on, f.batch, f.conditioning, w.time_projection, f.workspace);
            on.add_per_sample(f.batch, height * width, out_channels, f.workspace, kept.hidden);
        }
        on.group_norm(norm2(), f.batch, kept.hidden, nullptr, w.norm2, w.norm2 + out_channels, kept.active2,
                      kept.statistics2);
        if (projects_input()) {
            shortcut().apply(on, f.batch, f.input, f.skip, w.shortcut, f.output, into::write);
            conv2().apply(on, f.batch, kept.active2, w.conv2, f.output, into::add);
        } else {
            conv2().apply(on, f.batch, kept.active2, w.conv2, f.output, into::write);
            on.add(f.batch * elements(output()), f.input, f.output);
        }
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        using T = typename B::scalar;
        const auto w = weights(f.parameters);
        const auto dw = weights(f.parameter_gradients);
        const auto kept = saved(f);
        slices<T> deferred{f.deferred, f.batch};
        T* const hidden_gradient = deferred.take(out_channels * pixels());
        slices<T> workspace{f.workspace, f.batch};
        T* const active_gradient = workspace.take(widest() * pixels());
        T* const nobody = workspace.take(in_channels * pixels());

        on.conv2d_backward_input(conv2().window(), f.batch, f.output_gradient, w.conv2, active_gradient, into::write);
        on.group_norm_backward(norm2(), f.batch, kept.hidden, nullptr, w.norm2, w.norm2 + out_channels,
                               kept.statistics2, active_gradient, hidden_gradient, nullptr, dw.norm2,
                               dw.norm2 + out_channels, into::write);
        if (conditioning != 0) {
            T* const projected_gradient = deferred.take(out_channels);
            on.sum_pixels(f.batch, height * width, out_channels, hidden_gradient, projected_gradient);
            on.linear_backward_input(time_projection().matrix(), f.batch, projected_gradient, w.time_projection,
                                     f.conditioning_gradient, into::add);
        }
        on.conv2d_backward_input(conv1().window(), f.batch, hidden_gradient, w.conv1, active_gradient, into::write);

        // The residual's gradient is written first and the norm adds to it, except with a skip, whose gradient the norm
        // always writes.
        const bool wanted = f.input_gradient != nullptr;
        T* const target = wanted ? f.input_gradient : nobody;
        const bool residual_first = skip_channels == 0 && wanted;
        if (residual_first && projects_input()) {
            on.conv2d_backward_input(shortcut().window(), f.batch, f.output_gradient, w.shortcut, target, into::write);
        } else if (residual_first) {
            on.copy(f.batch * elements(input()), f.output_gradient, target);
        }
        on.group_norm_backward(norm1(), f.batch, f.input, f.skip, w.norm1, w.norm1 + all_channels(), kept.statistics1,
                               active_gradient, target, f.skip_gradient, dw.norm1, dw.norm1 + all_channels(),
                               residual_first ? into::add : into::write);
        if (skip_channels != 0) {
            on.conv2d_pair_backward_input(shortcut().window(), skip_channels, f.batch, f.output_gradient, w.shortcut,
                                          target, f.skip_gradient, into::add);
        }
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        using T = typename B::scalar;
        const auto dw = weights(f.parameter_gradients);
        const auto kept = saved(f);
        slices<const T> deferred{f.deferred, f.batch};
        const T* const hidden_gradient = deferred.take(out_channels * pixels());
        conv1().apply_backward_weight(on, f.batch, kept.active1, hidden_gradient, dw.conv1);
        if (conditioning != 0) {
            const T* const projected_gradient = deferred.take(out_channels);
            time_projection().apply_backward_weight(on, f.batch, f.conditioning, projected_gradient,
                                                    dw.time_projection);
        }
        conv2().apply_backward_weight(on, f.batch, kept.active2, f.output_gradient, dw.conv2);
        if (projects_input()) {
            shortcut().apply_backward_weight(on, f.batch, f.input, f.skip, f.output_gradient, dw.shortcut);
        }
    }

private:
    template <class T>
    struct weight_pieces {
        T* norm1;
        T* conv1;
        T* time_projection;
        T* norm2;
        T* conv2;
        T* shortcut;
    };
    template <class T, class A>
    struct saved_pieces {
        T* active1;
        T* hidden;
        T* active2;
        A* statistics1;
        A* statistics2;
    };

    [[nodiscard]] constexpr std::int64_t widest() const noexcept {
        return all_channels() > out_channels ? all_channels() : out_channels;
    }
    /// The same for parameters and for their gradients; weight and bias of each part are neighbours.
    template <class T>
    [[nodiscard]] constexpr weight_pieces<T> weights(T* begin) const noexcept {
        slices<T> all{begin};
        const std::int64_t out = out_channels;
        return {.norm1 = all.take(2 * std::int64_t{all_channels()}),
                .conv1 = all.take(conv1().window().weight_elements() + out),
                .time_projection = all.take(conditioning != 0 ? time_projection().weight_elements() + out : 0),
                .norm2 = all.take(2 * out),
                .conv2 = all.take(conv2().window().weight_elements() + out),
                .shortcut = all.take(0)};
    }
    template <class T, class A>
    [[nodiscard]] constexpr saved_pieces<T, A> saved(const layer_frame<T, A>& f) const noexcept {
        slices<T> all{f.saved, f.batch};
        slices<A> precise{f.statistics, f.batch};
        return {.active1 = all.take(all_channels() * pixels()),
                .hidden = all.take(out_channels * pixels()),
                .active2 = all.take(out_channels * pixels()),
                .statistics1 = precise.take(2 * std::int64_t{groups}),
                .statistics2 = precise.take(2 * std::int64_t{groups})};
    }
};

} // namespace pulse::nn
