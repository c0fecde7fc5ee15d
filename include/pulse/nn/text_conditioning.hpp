#pragma once

#include <cstdint>

#include <pulse/model/condition.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/mlp_embedding.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/nn/time_embedding.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// The conditioning of a UNet with text: c = silu(time(t) + added(pooled, sizes)), and the text states, as given or
/// projected by a linear layer.
///
/// The second summand is SDXL's: an MLP of the pooled text and of six numbers about the image, each encoded as a
/// sinusoid like the time; without it c is that of time_embedding, SiLU included. Text: the states [tokens][features],
/// then the pooled text. Facts: the sizes (original, crop, target). The text states are not trained: they have no
/// gradient unless they are projected.
struct text_conditioning {
    static constexpr bool writes_gradients = true;

    static constexpr int sizes = 6;

    time_embedding time{};
    int context_tokens{};
    int context_features{};
    int given_features{}; ///< features of the given states if they are projected to context_features; 0: they are not
    int pooled{};         ///< features of the pooled text; 0: there is no second summand
    int size_features{};  ///< features of the sinusoid of each size

    [[nodiscard]] constexpr bool adds() const noexcept { return pooled != 0; }
    [[nodiscard]] constexpr mlp_embedding added_mlp() const noexcept {
        return {1, pooled + sizes * size_features, time.width, time.width};
    }
    [[nodiscard]] constexpr bool projects() const noexcept { return given_features != 0; }
    [[nodiscard]] constexpr linear projection() const noexcept { return {given_features, context_features}; }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (time.defect() != flaw::none) { return time.defect(); }
        if (context_tokens <= 0 || context_features <= 0 || given_features < 0 || pooled < 0 ||
            (adds() && size_features <= 0)) {
            return flaw::size;
        }
        const bool waves = size_features % 2 == 0 && size_features / 2 > time.freq_shift;
        return adds() && !waves ? flaw::features : flaw::none;
    }

    [[nodiscard]] constexpr sample_dims output() const noexcept { return {time.width, 0, 0}; }

    struct pieces {
        mlp_embedding::pieces time, added;
        weight_piece projected;
        saved_piece waves, sum, joined; ///< sinusoids of the time; input of SiLU; input of the second MLP
        workspace_piece size_waves;
        workspace_piece summand;
        workspace_piece sum_gradient, hidden_gradient;
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        d.reads({condition_kind::text_states, context_tokens, projects() ? given_features : context_features});
        if (adds()) {
            d.reads({condition_kind::pooled_text, 1, pooled});
            d.reads({condition_kind::original_crop_target, 1, sizes});
        }
        d.gives_context({context_tokens, context_features, 0}, projects());
        d.save(time.features, p.waves);
        d.save(time.width, p.sum);
        p.time = d.part("/time_embedding", time.mlp());
        if (projects()) { p.projected = d.linear("/encoder_hid_proj", context_tokens, projection().matrix()); }
        if (adds()) {
            d.save(added_mlp().features, p.joined);
            p.added = d.part("/add_embedding", added_mlp());
        }
        d.work(std::int64_t{sizes} * size_features, p.size_waves);
        d.work_again();
        d.work(time.width, p.summand);
        d.work_again();
        d.work(time.width, p.sum_gradient, p.hidden_gradient);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t n = f.batch * std::int64_t{time.width};
        on.sinusoid(f.batch, time.features, time.flip_sin_to_cos, time.freq_shift, f.timesteps, f[p.waves]);
        time.mlp().apply(on, f, p.time, f[p.waves], f[p.sum]);
        if (adds()) {
            const auto* const given_pooled = f.text + f.batch * given_elements();
            const std::int64_t all = added_mlp().features;
            on.copy_rows(f.batch, pooled, given_pooled, pooled, f[p.joined], all);
            on.sinusoid(f.batch * sizes, size_features, time.flip_sin_to_cos, time.freq_shift, f.facts,
                        f[p.size_waves]);
            on.copy_rows(f.batch, all - pooled, f[p.size_waves], all - pooled, f[p.joined] + pooled, all);
            added_mlp().apply(on, f, p.added, f[p.joined], f[p.summand]);
            on.add(n, f[p.summand], f[p.sum]);
        }
        on.silu(n, f[p.sum], f.output);
        if (projects()) {
            projection().apply(on, text_rows(f.batch), f.text, f[p.projected], f.output + n);
        } else {
            on.copy(f.batch * given_elements(), f.text, f.output + n);
        }
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t n = f.batch * std::int64_t{time.width};
        if (projects()) {
            projection().apply_backward_weight(on, text_rows(f.batch), f.text, f.output_gradient + n,
                                               f.gradient(p.projected));
        }
        on.silu_backward(n, f[p.sum], f.output_gradient, f[p.sum_gradient], into::write);
        if (adds()) {
            added_mlp().apply_backward(on, f, p.added, f[p.joined], f[p.sum_gradient], f[p.hidden_gradient]);
        }
        time.mlp().apply_backward(on, f, p.time, f[p.waves], f[p.sum_gradient], f[p.hidden_gradient]);
    }

private:
    /// Elements of a sample's text states as given.
    [[nodiscard]] constexpr std::int64_t given_elements() const noexcept {
        return std::int64_t{context_tokens} * (projects() ? given_features : context_features);
    }
    [[nodiscard]] constexpr std::int64_t text_rows(int batch) const noexcept {
        return std::int64_t{batch} * context_tokens;
    }
};

} // namespace pulse::nn
