#pragma once

#include <algorithm>
#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/mlp_embedding.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// The embedding of time and more that every block of Hunyuan-DiT reads (diffusers'
/// HunyuanCombinedTimestepTextSizeStyleEmbedding): an MLP of the timestep, plus an MLP of the T5 text states, pooled by
/// one query of an attention, and in version 1.1 also of the image's sizes and of a style.
///
/// What eager autograd keeps for its backward pass is left out, as in the tables that the model is compared with: all
/// of it together is about a hundredth of what one block keeps.
struct hunyuan_time_embedding {
    static constexpr int sinusoid = 256;
    static constexpr int image_sizes = 6;  ///< numbers about the image, each as a sinusoid
    static constexpr int pooler_heads = 8; ///< of the attention that pools the text

    int width{};
    int text_tokens{};
    int text_features{};
    int pooled_features{};
    bool style_and_sizes{};

    /// Of the pooling: the mean of the text goes before it and is the query.
    [[nodiscard]] constexpr int positions() const noexcept { return text_tokens + 1; }
    /// Of what the second MLP reads: the pooled text, sizes and style.
    [[nodiscard]] constexpr int extra_features() const noexcept {
        return pooled_features + (style_and_sizes ? image_sizes * sinusoid + width : 0);
    }
    [[nodiscard]] constexpr mlp_embedding time_mlp() const noexcept { return {1, sinusoid, width, width}; }
    [[nodiscard]] constexpr mlp_embedding extra_mlp() const noexcept { return {1, extra_features(), 4 * width, width}; }
    [[nodiscard]] constexpr linear pooler() const noexcept { return {text_features, text_features}; }
    [[nodiscard]] constexpr linear pooled() const noexcept { return {text_features, pooled_features}; }
    [[nodiscard]] constexpr attention_shape pooling() const noexcept {
        return {1, pooler_heads, text_features / pooler_heads, positions()};
    }
    [[nodiscard]] constexpr embedding_shape style() const noexcept { return {1, width}; }

    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (width <= 0 || text_tokens <= 0 || text_features <= 0 || pooled_features <= 0) { return flaw::size; }
        return text_features % pooler_heads != 0 ? flaw::heads : flaw::none;
    }
    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(name);
        time_mlp().describe_into(d, "timestep_embedder.linear_1", "timestep_embedder.linear_2");
        d.parameter("pooler.positional_embedding", {positions(), text_features});
        d.linear("pooler.k_proj", positions(), text_features, text_features);
        d.linear("pooler.q_proj", 1, text_features, text_features);
        d.linear("pooler.v_proj", positions(), text_features, text_features);
        d.linear("pooler.c_proj", 1, text_features, pooled_features);
        d.attention(1, positions(), text_features);
        if (style_and_sizes) { d.parameter("style_embedder.weight", {1, width}); }
        extra_mlp().describe_into(d, "extra_embedder.linear_1", "extra_embedder.linear_2");
    }
};

/// The text states that every block of Hunyuan-DiT attends to: those of T5 through an MLP (text_embedder) to the width
/// of CLIP's, behind CLIP's; where a text ends early there are learned vectors (text_embedding_padding).
struct hunyuan_text_embedding {
    int tokens{};
    int features{};
    int width{};
    int all_tokens{};

    [[nodiscard]] constexpr mlp_embedding core() const noexcept { return {tokens, features, 4 * features, width}; }
    [[nodiscard]] constexpr flaw defect() const noexcept { return all_tokens <= tokens ? flaw::size : core().defect(); }
    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        core().describe(d, name);
        d.within({});
        d.parameter("text_embedding_padding", {all_tokens, width});
    }
};

/// The conditioning of Hunyuan-DiT: c = silu(time_mlp(t) + extra_mlp(pooled text, sizes, style)), and the text states.
///
/// Every block applies SiLU to the embedding before its own projection; here it is done once. Text: CLIP's states
/// [all - T5's tokens][width], then T5's [tokens][features]. Facts: whether each token of both is a text's (1) or
/// padding (0); in version 1.1 also the six sizes of the image and the style, which is 0. The text states are trained.
struct hunyuan_conditioning {
    hunyuan_time_embedding time{};
    hunyuan_text_embedding text{};

    [[nodiscard]] constexpr flaw defect() const noexcept {
        return time.defect() != flaw::none ? time.defect() : text.defect();
    }
    [[nodiscard]] constexpr extent output() const noexcept { return {time.width, 0, 0}; }
    [[nodiscard]] constexpr std::int64_t text_elements() const noexcept { return clip_elements() + t5_elements(); }
    [[nodiscard]] constexpr std::int64_t fact_elements() const noexcept {
        return text.all_tokens + (time.style_and_sizes ? time.image_sizes + 1 : 0);
    }
    [[nodiscard]] constexpr bool trains_context() const noexcept { return true; }

    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept {
        return time.sinusoid + time.width + time.time_mlp().kept_elements() + 3 * pooler_states() +
               2 * std::int64_t{time.text_features} + time.extra_features() + time.extra_mlp().kept_elements() +
               text.core().kept_elements();
    }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept { return time.pooler_heads; }
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept {
        const std::int64_t pooling = 3 * pooler_states() + 4 * std::int64_t{time.text_features} + time.pooled_features;
        const std::int64_t embedding = time.width + time.extra_mlp().hidden_elements() + time.extra_features() +
                                       std::max<std::int64_t>(time.width, pooling);
        const std::int64_t states = context_elements() + projected_elements() + text.core().hidden_elements();
        const std::int64_t forward =
            std::max<std::int64_t>({std::int64_t{time.image_sizes} * time.sinusoid, time.width, time.text_features,
                                    time.pooled_features, projected_elements()});
        return std::max({embedding, states, forward});
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        const auto w = weights(f.parameters);
        const auto kept = saved<B>(f);
        const std::int64_t n = f.batch * std::int64_t{time.width};
        on.sinusoid(f.batch, time.sinusoid, true, 0.0, f.timesteps, kept.waves);
        time.time_mlp().apply(on, f.batch, kept.waves, w.time, kept.time, kept.sum);
        pool(on, f, w, kept);
        if (time.style_and_sizes) { add_style_and_sizes(on, f, w, kept); }
        time.extra_mlp().apply(on, f.batch, kept.joined, w.extra, kept.extra, f.workspace);
        on.add(n, f.workspace, kept.sum);
        on.silu(n, kept.sum, f.output);

        auto* const states = f.output + n;
        text.core().apply(on, f.batch, t5(f), w.text, kept.text, f.workspace);
        on.copy_rows(f.batch, clip_elements(), f.text, clip_elements(), states, context_elements());
        on.copy_rows(f.batch, projected_elements(), f.workspace, projected_elements(), states + clip_elements(),
                     context_elements());
        on.replace_padding(f.batch, text.all_tokens, text.width, f.facts, w.padding, states);
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        using T = typename B::scalar;
        const auto w = weights(f.parameters);
        const auto dw = weights(f.parameter_gradients);
        const auto kept = saved<B>(f);
        const std::int64_t n = f.batch * std::int64_t{time.width};
        {
            slices<T> workspace{f.workspace, f.batch};
            T* const states = workspace.take(context_elements());
            T* const projected = workspace.take(projected_elements());
            T* const hidden = workspace.take(0);
            on.replace_padding_backward(f.batch, text.all_tokens, text.width, f.facts, f.output_gradient + n, states,
                                        dw.padding);
            on.copy_rows(f.batch, projected_elements(), states + clip_elements(), context_elements(), projected,
                         projected_elements());
            text.core().apply_backward(on, f.batch, t5(f), w.text, kept.text, projected, hidden, dw.text);
        }
        slices<T> workspace{f.workspace, f.batch};
        T* const sum = workspace.take(time.width);
        T* const hidden = workspace.take(time.extra_mlp().hidden_elements());
        T* const joined = workspace.take(time.extra_features());
        T* const rest = workspace.take(0);
        on.silu_backward(n, kept.sum, f.output_gradient, sum, into::write);
        time.extra_mlp().apply_backward(on, f.batch, kept.joined, w.extra, kept.extra, sum, hidden, dw.extra);
        on.linear_backward_input(time.extra_mlp().first().matrix(), f.batch, hidden, w.extra, joined, into::write);
        time.time_mlp().apply_backward(on, f.batch, kept.waves, w.time, kept.time, sum, rest, dw.time);
        if (time.style_and_sizes) {
            on.copy_rows(f.batch, time.width, joined + time.extra_features() - time.width, time.extra_features(), rest,
                         time.width);
            on.embedding_backward_weight(time.style(), f.batch, style_of(f), rest, dw.style);
        }
        unpool(on, f, w, dw, kept, joined, rest);
    }

private:
    template <class T>
    struct weight_pieces {
        T* time;
        T* positions;
        T* k;
        T* q;
        T* v;
        T* pooled;
        T* style;
        T* extra;
        T* text;
        T* padding;
    };
    template <class T, class A>
    struct saved_pieces {
        T* waves;
        T* sum;
        mlp_embedding::kept_pieces<T> time;
        T* states; ///< what is pooled: the text's mean and the text, with their positions
        T* k;
        T* v;
        T* q;
        T* mixed;
        T* joined;
        mlp_embedding::kept_pieces<T> extra;
        mlp_embedding::kept_pieces<T> text;
        A* log_sums;
    };

    [[nodiscard]] constexpr std::int64_t t5_elements() const noexcept {
        return std::int64_t{text.tokens} * text.features;
    }
    [[nodiscard]] constexpr std::int64_t clip_elements() const noexcept {
        return std::int64_t{text.all_tokens - text.tokens} * text.width;
    }
    [[nodiscard]] constexpr std::int64_t context_elements() const noexcept {
        return std::int64_t{text.all_tokens} * text.width;
    }
    /// T5's states at the width of CLIP's.
    [[nodiscard]] constexpr std::int64_t projected_elements() const noexcept {
        return std::int64_t{text.tokens} * text.width;
    }
    [[nodiscard]] constexpr std::int64_t pooler_states() const noexcept {
        return std::int64_t{time.positions()} * time.text_features;
    }
    template <class T, class A>
    [[nodiscard]] constexpr const T* t5(const layer_frame<T, A>& f) const noexcept {
        return f.text + f.batch * clip_elements();
    }
    template <class T, class A>
    [[nodiscard]] constexpr const A* sizes_of(const layer_frame<T, A>& f) const noexcept {
        return f.facts + std::int64_t{f.batch} * text.all_tokens;
    }
    template <class T, class A>
    [[nodiscard]] constexpr const A* style_of(const layer_frame<T, A>& f) const noexcept {
        return sizes_of(f) + std::int64_t{f.batch} * time.image_sizes;
    }

    /// The pooled text into the beginning of what the second MLP reads.
    template <backend B, class Weights, class Kept>
    void pool(B& on, const backend_frame<B>& f, const Weights& w, const Kept& kept) const {
        using A = typename B::accumulator;
        const int features = time.text_features;
        const std::int64_t all = pooler_states();
        const std::int64_t rows = std::int64_t{f.batch} * time.positions();
        const std::int64_t n = std::int64_t{f.batch} * features;
        on.sum_pixels(f.batch, time.text_tokens, features, t5(f), f.workspace);
        on.scale(n, A{1} / static_cast<A>(time.text_tokens), f.workspace, f.workspace);
        on.copy_rows(f.batch, features, f.workspace, features, kept.states, all);
        on.copy_rows(f.batch, all - features, t5(f), all - features, kept.states + features, all);
        on.add_per_sample(1, f.batch, static_cast<int>(all), w.positions, kept.states);
        time.pooler().apply(on, rows, kept.states, w.k, kept.k);
        time.pooler().apply(on, rows, kept.states, w.v, kept.v);
        on.copy_rows(f.batch, features, kept.states, all, f.workspace, features);
        time.pooler().apply(on, f.batch, f.workspace, w.q, kept.q);
        on.attention(time.pooling(), f.batch, kept.q, kept.k, kept.v, kept.mixed, kept.log_sums);
        time.pooled().apply(on, f.batch, kept.mixed, w.pooled, f.workspace);
        on.copy_rows(f.batch, time.pooled_features, f.workspace, time.pooled_features, kept.joined,
                     time.extra_features());
    }
    /// `joined` is the gradient of what the second MLP reads; `rest` is workspace.
    template <backend B, class Weights, class Gradients, class Kept>
    void unpool(B& on, const backend_frame<B>& f, const Weights& w, const Gradients& dw, const Kept& kept,
                const typename B::scalar* joined, typename B::scalar* rest) const {
        using T = typename B::scalar;
        const int features = time.text_features;
        const std::int64_t all = pooler_states();
        const std::int64_t rows = std::int64_t{f.batch} * time.positions();
        const linear_shape matrix = time.pooler().matrix();
        slices<T> workspace{rest, f.batch};
        T* const pooled = workspace.take(time.pooled_features);
        T* const mixed = workspace.take(features);
        T* const q = workspace.take(features);
        T* const mean = workspace.take(features);
        T* const mean_gradient = workspace.take(features);
        T* const k = workspace.take(all);
        T* const v = workspace.take(all);
        T* const states = workspace.take(all);
        on.copy_rows(f.batch, time.pooled_features, joined, time.extra_features(), pooled, time.pooled_features);
        time.pooled().apply_backward_weight(on, f.batch, kept.mixed, pooled, dw.pooled);
        on.linear_backward_input(time.pooled().matrix(), f.batch, pooled, w.pooled, mixed, into::write);
        on.attention_backward(time.pooling(), f.batch, kept.q, kept.k, kept.v, kept.mixed, kept.log_sums, mixed, q, k,
                              v);
        time.pooler().apply_backward_weight(on, rows, kept.states, k, dw.k);
        time.pooler().apply_backward_weight(on, rows, kept.states, v, dw.v);
        on.copy_rows(f.batch, features, kept.states, all, mean, features);
        time.pooler().apply_backward_weight(on, f.batch, mean, q, dw.q);
        on.linear_backward_input(matrix, rows, k, w.k, states, into::write);
        on.linear_backward_input(matrix, rows, v, w.v, states, into::add);
        on.linear_backward_input(matrix, f.batch, q, w.q, mean_gradient, into::write);
        on.sum_rows(f.batch, static_cast<int>(all), states, dw.positions);
        on.sum_rows(f.batch, features, mean_gradient, dw.positions);
    }

    template <backend B, class Weights, class Kept>
    void add_style_and_sizes(B& on, const backend_frame<B>& f, const Weights& w, const Kept& kept) const {
        const std::int64_t all = time.extra_features();
        const std::int64_t waves = std::int64_t{time.image_sizes} * time.sinusoid;
        on.sinusoid(f.batch * time.image_sizes, time.sinusoid, true, 0.0, sizes_of(f), f.workspace);
        on.copy_rows(f.batch, waves, f.workspace, waves, kept.joined + time.pooled_features, all);
        on.embedding(time.style(), f.batch, style_of(f), w.style, f.workspace);
        on.copy_rows(f.batch, time.width, f.workspace, time.width, kept.joined + all - time.width, all);
    }

    template <class T>
    [[nodiscard]] constexpr weight_pieces<T> weights(T* begin) const noexcept {
        slices<T> all{begin};
        const std::int64_t matrix = time.pooler().weight_elements() + time.text_features;
        return {.time = all.take(time.time_mlp().parameter_elements()),
                .positions = all.take(pooler_states()),
                .k = all.take(matrix),
                .q = all.take(matrix),
                .v = all.take(matrix),
                .pooled = all.take(time.pooled().weight_elements() + time.pooled_features),
                .style = all.take(time.style_and_sizes ? time.width : 0),
                .extra = all.take(time.extra_mlp().parameter_elements()),
                .text = all.take(text.core().parameter_elements()),
                .padding = all.take(0)};
    }
    template <class B>
    [[nodiscard]] constexpr auto saved(const backend_frame<B>& f) const noexcept {
        using T = typename B::scalar;
        using A = typename B::accumulator;
        slices<T> all{f.saved, f.batch};
        return saved_pieces<T, A>{.waves = all.take(time.sinusoid),
                                  .sum = all.take(time.width),
                                  .time = time.time_mlp().take(all),
                                  .states = all.take(pooler_states()),
                                  .k = all.take(pooler_states()),
                                  .v = all.take(pooler_states()),
                                  .q = all.take(time.text_features),
                                  .mixed = all.take(time.text_features),
                                  .joined = all.take(time.extra_features()),
                                  .extra = time.extra_mlp().take(all),
                                  .text = text.core().take(all),
                                  .log_sums = f.statistics};
    }
};

} // namespace pulse::nn
