#pragma once

#include <cstdint>

#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/mlp_embedding.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// From timesteps [batch] to the conditioning [batch][width]: c = silu(linear_2(silu(linear_1(sinusoid(t))))).
///
/// In diffusers the embedding ends with linear_2 and every ResNet block applies SiLU to it before its own projection.
/// That SiLU has no parameters and is the same everywhere, so it is applied once here and the pipeline relays
/// silu(temb): the same function and the same gradients with less work.
struct time_embedding {
    static constexpr bool writes_gradients = true;

    int features{}; ///< of the sinusoid
    int width{};    ///< of the conditioning
    bool flip_sin_to_cos{true};
    int freq_shift{};

    [[nodiscard]] constexpr mlp_embedding mlp() const noexcept { return {1, features, width, width}; }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (features <= 0 || width <= 0) { return flaw::size; }
        return features % 2 != 0 || features / 2 <= freq_shift ? flaw::features : flaw::none;
    }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return {width, 0, 0}; }

    struct pieces {
        mlp_embedding::pieces mlp;
        saved_piece waves, embedding; ///< sinusoids; the MLP's output
        workspace_piece embedding_gradient, hidden_gradient;
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        d.save(features, p.waves);
        p.mlp = d.part("", mlp());
        d.save(width, p.embedding);
        d.work(width, p.embedding_gradient, p.hidden_gradient);
        return p;
    }

    /// Reads `f.timesteps`; `f.output` is the conditioning.
    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.sinusoid(f.batch, features, flip_sin_to_cos, freq_shift, f.timesteps, f[p.waves]);
        mlp().apply(on, f, p.mlp, f[p.waves], f[p.embedding]);
        on.silu(f.batch * std::int64_t{width}, f[p.embedding], f.output);
    }

    /// Makes every parameter gradient; the timesteps have none.
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.silu_backward(f.batch * std::int64_t{width}, f[p.embedding], f.output_gradient, f[p.embedding_gradient],
                         into::write);
        mlp().apply_backward(on, f, p.mlp, f[p.waves], f[p.embedding_gradient], f[p.hidden_gradient]);
    }
};

} // namespace pulse::nn
