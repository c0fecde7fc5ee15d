#pragma once

#include <algorithm>
#include <cstdint>

#include <pulse/nn/block.hpp>
#include <pulse/nn/mlp_embedding.hpp>
#include <pulse/nn/time_embedding.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// The conditioning of a UNet with text: c = silu(time(t) + added(pooled, sizes)), and the text states as they are
/// given.
///
/// The second summand is SDXL's: an MLP of the pooled text and of six numbers about the image, each as a sinusoid
/// (cosines first); without it c is that of time_embedding, SiLU included. Text: the states [tokens][features], then
/// the pooled text. Facts: the sizes (original, crop, target). The text states are not trained: they have no gradient.
struct text_conditioning {
    static constexpr int sizes = 6;

    time_embedding time{};
    int context_tokens{};
    int context_features{};
    int pooled{};        ///< features of the pooled text; 0: there is no second summand
    int size_features{}; ///< of each sinusoid of a size

    [[nodiscard]] constexpr bool adds() const noexcept { return pooled != 0; }
    [[nodiscard]] constexpr mlp_embedding time_mlp() const noexcept {
        return {1, time.features, time.width, time.width};
    }
    [[nodiscard]] constexpr mlp_embedding added_mlp() const noexcept {
        return {1, pooled + sizes * size_features, time.width, time.width};
    }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (time.defect() != flaw::none) { return time.defect(); }
        if (context_tokens <= 0 || context_features <= 0 || pooled < 0 || (adds() && size_features <= 0)) {
            return flaw::size;
        }
        return size_features % 2 != 0 ? flaw::features : flaw::none;
    }

    [[nodiscard]] constexpr extent output() const noexcept { return {time.width, 0, 0}; }
    [[nodiscard]] constexpr std::int64_t text_elements() const noexcept { return context_elements() + pooled; }
    [[nodiscard]] constexpr std::int64_t fact_elements() const noexcept { return adds() ? sizes : 0; }
    [[nodiscard]] constexpr bool trains_context() const noexcept { return false; }

    /// The sinusoid of the time, the sum before its SiLU, the second summand's input and what both MLPs keep.
    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept {
        const std::int64_t more = adds() ? added_mlp().features + added_mlp().kept_elements() : 0;
        return time.features + time.width + time_mlp().kept_elements() + more;
    }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept { return 0; }
    /// The sinusoids of the sizes, the second summand; backward, the sum's gradient and that of an MLP's hidden layer.
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept {
        return std::max<std::int64_t>(2 * std::int64_t{time.width}, std::int64_t{sizes} * size_features);
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        const auto kept = saved(f);
        const std::int64_t n = f.batch * std::int64_t{time.width};
        on.sinusoid(f.batch, time.features, time.flip_sin_to_cos, time.freq_shift, f.timesteps, kept.waves);
        time_mlp().apply(on, f.batch, kept.waves, f.parameters, kept.time, kept.sum);
        if (adds()) {
            const auto* const given_pooled = f.text + f.batch * context_elements();
            const std::int64_t all = added_mlp().features;
            on.copy_rows(f.batch, pooled, given_pooled, pooled, kept.joined, all);
            on.sinusoid(f.batch * sizes, size_features, true, 0.0, f.facts, f.workspace);
            on.copy_rows(f.batch, all - pooled, f.workspace, all - pooled, kept.joined + pooled, all);
            added_mlp().apply(on, f.batch, kept.joined, f.parameters + time_mlp().parameter_elements(), kept.added,
                              f.workspace);
            on.add(n, f.workspace, kept.sum);
        }
        on.silu(n, kept.sum, f.output);
        on.copy(f.batch * context_elements(), f.text, f.output + n);
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        const auto kept = saved(f);
        const std::int64_t n = f.batch * std::int64_t{time.width};
        auto* const sum_gradient = f.workspace;
        auto* const hidden_gradient = f.workspace + n;
        on.silu_backward(n, kept.sum, f.output_gradient, sum_gradient, into::write);
        if (adds()) {
            const std::int64_t before = time_mlp().parameter_elements();
            added_mlp().apply_backward(on, f.batch, kept.joined, f.parameters + before, kept.added, sum_gradient,
                                       hidden_gradient, f.parameter_gradients + before);
        }
        time_mlp().apply_backward(on, f.batch, kept.waves, f.parameters, kept.time, sum_gradient, hidden_gradient,
                                  f.parameter_gradients);
    }

private:
    template <class T>
    struct saved_pieces {
        T* waves;
        T* sum;
        mlp_embedding::kept_pieces<T> time;
        T* joined;
        mlp_embedding::kept_pieces<T> added;
    };

    [[nodiscard]] constexpr std::int64_t context_elements() const noexcept {
        return std::int64_t{context_tokens} * context_features;
    }
    template <class T, class A>
    [[nodiscard]] constexpr saved_pieces<T> saved(const layer_frame<T, A>& f) const noexcept {
        slices<T> all{f.saved, f.batch};
        return {.waves = all.take(time.features),
                .sum = all.take(time.width),
                .time = time_mlp().take(all),
                .joined = all.take(adds() ? added_mlp().features : 0),
                .added = adds() ? added_mlp().take(all) : mlp_embedding::kept_pieces<T>{}};
    }
};

} // namespace pulse::nn
