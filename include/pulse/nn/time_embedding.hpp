#pragma once

#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// From timesteps [batch] to the conditioning [batch][width]: c = silu(linear_2(silu(linear_1(sinusoid(t))))).
///
/// In diffusers the embedding ends with linear_2 and every ResNet block applies SiLU to it before its own projection.
/// That SiLU has no parameters and is the same everywhere, so it is done once here and what travels along the pipeline
/// is silu(temb): the same function and the same gradients with less work. Parameters: linear_1, linear_2. Saves the
/// sinusoids, both linear outputs and the activation between them.
struct time_embedding {
    int features{}; ///< of the sinusoid
    int width{};    ///< of the conditioning
    bool flip_sin_to_cos{true};
    int freq_shift{};

    [[nodiscard]] constexpr linear first() const noexcept { return {features, width}; }
    [[nodiscard]] constexpr linear second() const noexcept { return {width, width}; }

    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (features <= 0 || width <= 0) { return flaw::size; }
        return features % 2 != 0 || features / 2 <= freq_shift ? flaw::features : flaw::none;
    }
    [[nodiscard]] constexpr extent output() const noexcept { return {width, 0, 0}; }
    [[nodiscard]] constexpr parameter_list parameters(const label& name) const {
        parameter_list list;
        list.add_pair(name + ".linear_1", {width, features});
        list.add_pair(name + ".linear_2", {width, width});
        return list;
    }
    [[nodiscard]] constexpr double forward_flops() const noexcept {
        return first().forward_flops() + second().forward_flops();
    }
    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept { return features + 3 * std::int64_t{width}; }
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept { return 2 * std::int64_t{width}; }

    /// Reads `f.timesteps`; `f.output` is the conditioning.
    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        const auto kept = saved(f);
        const auto* const weight2 = f.parameters + first().weight_elements() + width;
        on.sinusoid(f.batch, features, flip_sin_to_cos, freq_shift, f.timesteps, kept.waves);
        first().apply(on, f.batch, kept.waves, f.parameters, kept.hidden);
        on.silu(f.batch * std::int64_t{width}, kept.hidden, kept.active);
        second().apply(on, f.batch, kept.active, weight2, kept.embedding);
        on.silu(f.batch * std::int64_t{width}, kept.embedding, f.output);
    }

    /// Adds every parameter gradient; the timesteps have none.
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        using T = typename B::scalar;
        const auto kept = saved(f);
        const std::int64_t offset = first().weight_elements() + width;
        const std::int64_t n = f.batch * std::int64_t{width};
        slices<T> workspace{f.workspace, f.batch};
        T* const embedding_gradient = workspace.take(width);
        T* const hidden_gradient = workspace.take(width);
        on.silu_backward(n, kept.embedding, f.output_gradient, embedding_gradient, into::write);
        second().apply_backward_weight(on, f.batch, kept.active, embedding_gradient, f.parameter_gradients + offset);
        on.linear_backward_input(second().matrix(), f.batch, embedding_gradient, f.parameters + offset, hidden_gradient,
                                 into::write);
        on.silu_backward(n, kept.hidden, hidden_gradient, hidden_gradient, into::write);
        first().apply_backward_weight(on, f.batch, kept.waves, hidden_gradient, f.parameter_gradients);
    }

private:
    template <class T>
    struct saved_pieces {
        T* waves;
        T* hidden;
        T* active;
        T* embedding;
    };

    template <class T, class A>
    [[nodiscard]] constexpr saved_pieces<T> saved(const layer_frame<T, A>& f) const noexcept {
        slices<T> all{f.saved, f.batch};
        return {.waves = all.take(features),
                .hidden = all.take(width),
                .active = all.take(width),
                .embedding = all.take(width)};
    }
};

} // namespace pulse::nn
