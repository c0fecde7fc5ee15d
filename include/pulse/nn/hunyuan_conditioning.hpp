#pragma once

#include <cstdint>

#include <pulse/model/condition.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/mlp_embedding.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// The combined embedding that every block of Hunyuan-DiT reads (diffusers'
/// HunyuanCombinedTimestepTextSizeStyleEmbedding): an MLP of the timestep, plus an MLP of the T5 text states, which an
/// attention with one query pools, and in version 1.1 also of the image's sizes and a style. A part of
/// hunyuan_conditioning.
struct hunyuan_time_embedding {
    static constexpr int sinusoid = 256;
    static constexpr int image_sizes = 6;  ///< numbers about the image, each encoded as a sinusoid
    static constexpr int pooler_heads = 8; ///< of the attention that pools the text

    int width{};
    int text_tokens{};
    int text_features{};
    int pooled_features{};
    bool style_and_sizes{};

    /// Positions of the pooling attention: the mean of the text, which is the query, then the text.
    [[nodiscard]] constexpr int positions() const noexcept { return text_tokens + 1; }
    /// Input features of the second MLP: the pooled text, sizes and style.
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

    struct pieces {
        mlp_embedding::pieces time, extra;
        weight_piece positions, to_k, to_q, to_v, to_pooled, style;
        saved_piece waves, sum;   ///< sinusoids; input of SiLU
        saved_piece states, k, v; ///< states: the pooling's input, the text's mean and the text, plus their positions
        saved_piece q, mixed;     ///< of the pooling
        saved_piece joined;       ///< input of the second MLP
        statistics_piece log_sums;
        workspace_piece scratch; ///< forward: results before they are copied to their places
        workspace_piece dsum, dhidden, djoined;
        workspace_piece rest; ///< the gradients of the first MLP's hidden layer, then of the style
        workspace_piece dpooled, dmixed, dq, mean, dmean, dk, dv, dstates;
    };
    constexpr pieces describe(description& d) const {
        const std::int64_t waves = std::int64_t{image_sizes} * sinusoid;
        pieces p{};
        d.save(sinusoid, p.waves);
        d.save(width, p.sum);
        p.time = d.part("timestep_embedder", time_mlp());
        p.positions = d.vectors("pooler.positional_embedding", {positions(), text_features});
        p.to_k = d.linear("pooler.k_proj", positions(), pooler().matrix());
        p.to_q = d.linear("pooler.q_proj", 1, pooler().matrix());
        p.to_v = d.linear("pooler.v_proj", positions(), pooler().matrix());
        p.to_pooled = d.linear("pooler.c_proj", 1, pooled().matrix());
        d.attention(pooling());
        d.save(pooler_states(), p.states, p.k, p.v);
        d.save(text_features, p.q, p.mixed);
        d.save(extra_features(), p.joined);
        d.statistics(pooler_heads, p.log_sums);
        if (style_and_sizes) { p.style = d.weight("style_embedder", {1, width}, false); }
        p.extra = d.part("extra_embedder", extra_mlp());
        for (const std::int64_t n :
             {waves, std::int64_t{width}, std::int64_t{text_features}, std::int64_t{pooled_features}}) {
            d.work_again();
            d.work(n, p.scratch);
        }
        d.work_again();
        d.work(width, p.dsum);
        d.work(extra_mlp().hidden_elements(), p.dhidden);
        d.work(extra_features(), p.djoined);
        d.work(width, p.rest);
        d.work_again(p.rest);
        d.work(pooled_features, p.dpooled);
        d.work(text_features, p.dmixed, p.dq, p.mean, p.dmean);
        d.work(pooler_states(), p.dk, p.dv, p.dstates);
        return p;
    }
    [[nodiscard]] constexpr std::int64_t pooler_states() const noexcept {
        return std::int64_t{positions()} * text_features;
    }
};

/// The text states that every block of Hunyuan-DiT attends to: CLIP's states, then those of T5, which an MLP
/// (text_embedder) brings to the same width; learned vectors replace padding tokens (text_embedding_padding).
struct hunyuan_text_embedding {
    int tokens{};
    int features{};
    int width{};
    int all_tokens{};

    [[nodiscard]] constexpr mlp_embedding core() const noexcept { return {tokens, features, 4 * features, width}; }
    [[nodiscard]] constexpr flaw defect() const noexcept { return all_tokens <= tokens ? flaw::size : core().defect(); }
    /// Elements of all states.
    [[nodiscard]] constexpr std::int64_t context_elements() const noexcept { return std::int64_t{all_tokens} * width; }
    /// Elements of T5's states at the width of CLIP's.
    [[nodiscard]] constexpr std::int64_t projected_elements() const noexcept { return std::int64_t{tokens} * width; }
    [[nodiscard]] constexpr std::int64_t clip_elements() const noexcept {
        return context_elements() - projected_elements();
    }

    struct pieces {
        mlp_embedding::pieces core;
        weight_piece padding;
        workspace_piece projected;
        workspace_piece dstates, dprojected, dhidden;
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.core = d.part("", core());
        p.padding = d.vectors("/text_embedding_padding", {all_tokens, width});
        d.work(projected_elements(), p.projected);
        d.work_again();
        d.work(context_elements(), p.dstates);
        d.work(projected_elements(), p.dprojected);
        d.work(core().hidden_elements(), p.dhidden);
        return p;
    }
};

/// The conditioning of Hunyuan-DiT: c = silu(time_mlp(t) + extra_mlp(pooled text, sizes, style)), and the text states.
///
/// In diffusers every block applies SiLU to the embedding before its own projection; here it is applied once. Text:
/// CLIP's states [all - T5's tokens][width], then T5's [tokens][features]. Facts: for each token of both, 1 for text or
/// 0 for padding; in version 1.1 also the six sizes of the image and the style, which is 0. The text states are
/// trained.
struct hunyuan_conditioning {
    static constexpr bool writes_gradients = true;

    hunyuan_time_embedding time{};
    hunyuan_text_embedding text{};

    [[nodiscard]] constexpr flaw defect() const noexcept {
        return time.defect() != flaw::none ? time.defect() : text.defect();
    }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return {time.width, 0, 0}; }

    struct pieces {
        hunyuan_time_embedding::pieces time;
        hunyuan_text_embedding::pieces text;
    };
    constexpr pieces describe(description& d) const {
        d.reads({condition_kind::text_states, text.all_tokens - text.tokens, text.width});
        d.reads({condition_kind::text_states, text.tokens, text.features});
        d.reads({condition_kind::text_mask, text.all_tokens});
        if (time.style_and_sizes) {
            d.reads({condition_kind::original_target_crop, 1, hunyuan_time_embedding::image_sizes});
            d.reads({condition_kind::style});
        }
        d.gives_context({text.all_tokens, text.width, 0}, true);
        pieces p{};
        p.time = d.part("/time_extra_emb", time);
        p.text = d.part("/text_embedder", text);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        embed_time(on, f, p.time);
        embed_text(on, f, p.text);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        unembed_text(on, f, p.text);
        unembed_time(on, f, p.time);
    }

private:
    using time_pieces = hunyuan_time_embedding::pieces;
    using text_pieces = hunyuan_text_embedding::pieces;

    template <class T, class A>
    [[nodiscard]] constexpr const T* t5(const layer_frame<T, A>& f) const noexcept {
        return f.text + f.batch * text.clip_elements();
    }
    template <class T, class A>
    [[nodiscard]] constexpr const A* sizes_of(const layer_frame<T, A>& f) const noexcept {
        return f.facts + std::int64_t{f.batch} * text.all_tokens;
    }
    template <class T, class A>
    [[nodiscard]] constexpr const A* style_of(const layer_frame<T, A>& f) const noexcept {
        return sizes_of(f) + std::int64_t{f.batch} * time.image_sizes;
    }
    /// The text states follow the embeddings of all samples.
    template <class T, class A>
    [[nodiscard]] constexpr std::int64_t context_at(const layer_frame<T, A>& f) const noexcept {
        return f.batch * std::int64_t{time.width};
    }

    template <backend B>
    void embed_time(B& on, const backend_frame<B>& f, const time_pieces& p) const {
        const std::int64_t n = f.batch * std::int64_t{time.width};
        on.sinusoid(f.batch, time.sinusoid, true, 0.0, f.timesteps, f[p.waves]);
        time.time_mlp().apply(on, f, p.time, f[p.waves], f[p.sum]);
        pool(on, f, p);
        if (time.style_and_sizes) { add_style_and_sizes(on, f, p); }
        time.extra_mlp().apply(on, f, p.extra, f[p.joined], f[p.scratch]);
        on.add(n, f[p.scratch], f[p.sum]);
        on.silu(n, f[p.sum], f.output);
    }
    template <backend B>
    void embed_text(B& on, const backend_frame<B>& f, const text_pieces& p) const {
        const std::int64_t clip = text.clip_elements();
        const std::int64_t projected = text.projected_elements();
        auto* const states = f.output + context_at(f);
        text.core().apply(on, f, p.core, t5(f), f[p.projected]);
        on.copy_rows(f.batch, clip, f.text, clip, states, text.context_elements());
        on.copy_rows(f.batch, projected, f[p.projected], projected, states + clip, text.context_elements());
        on.replace_padding(f.batch, text.all_tokens, text.width, f.facts, f[p.padding], states);
    }
    template <backend B>
    void unembed_text(B& on, const backend_frame<B>& f, const text_pieces& p) const {
        const std::int64_t projected = text.projected_elements();
        on.replace_padding_backward(f.batch, text.all_tokens, text.width, f.facts, f.output_gradient + context_at(f),
                                    f[p.dstates], f.gradient(p.padding));
        on.copy_rows(f.batch, projected, f[p.dstates] + text.clip_elements(), text.context_elements(), f[p.dprojected],
                     projected);
        text.core().apply_backward(on, f, p.core, t5(f), f[p.dprojected], f[p.dhidden]);
    }
    template <backend B>
    void unembed_time(B& on, const backend_frame<B>& f, const time_pieces& p) const {
        const mlp_embedding extra = time.extra_mlp();
        on.silu_backward(f.batch * std::int64_t{time.width}, f[p.sum], f.output_gradient, f[p.dsum], into::write);
        extra.apply_backward(on, f, p.extra, f[p.joined], f[p.dsum], f[p.dhidden]);
        on.linear_backward_input(extra.first().matrix(), f.batch, f[p.dhidden], f[p.extra.first], f[p.djoined],
                                 into::write);
        time.time_mlp().apply_backward(on, f, p.time, f[p.waves], f[p.dsum], f[p.rest]);
        if (time.style_and_sizes) {
            on.copy_rows(f.batch, time.width, f[p.djoined] + time.extra_features() - time.width, time.extra_features(),
                         f[p.rest], time.width);
            on.embedding_backward_weight(time.style(), f.batch, style_of(f), f[p.rest], f.gradient(p.style));
        }
        unpool(on, f, p);
    }

    /// Writes the pooled text to the beginning of the second MLP's input.
    template <backend B>
    void pool(B& on, const backend_frame<B>& f, const time_pieces& p) const {
        using A = typename B::accumulator;
        const int features = time.text_features;
        const std::int64_t all = time.pooler_states();
        const std::int64_t rows = std::int64_t{f.batch} * time.positions();
        const std::int64_t n = std::int64_t{f.batch} * features;
        on.sum_pixels(f.batch, time.text_tokens, features, t5(f), f[p.scratch]);
        on.scale(n, A{1} / static_cast<A>(time.text_tokens), f[p.scratch], f[p.scratch]);
        on.copy_rows(f.batch, features, f[p.scratch], features, f[p.states], all);
        on.copy_rows(f.batch, all - features, t5(f), all - features, f[p.states] + features, all);
        on.add_per_sample(1, f.batch, static_cast<int>(all), f[p.positions], f[p.states]);
        time.pooler().apply(on, rows, f[p.states], f[p.to_k], f[p.k]);
        time.pooler().apply(on, rows, f[p.states], f[p.to_v], f[p.v]);
        on.copy_rows(f.batch, features, f[p.states], all, f[p.scratch], features);
        time.pooler().apply(on, f.batch, f[p.scratch], f[p.to_q], f[p.q]);
        on.attention(time.pooling(), f.batch, f[p.q], f[p.k], f[p.v], f[p.mixed], f[p.log_sums]);
        time.pooled().apply(on, f.batch, f[p.mixed], f[p.to_pooled], f[p.scratch]);
        on.copy_rows(f.batch, time.pooled_features, f[p.scratch], time.pooled_features, f[p.joined],
                     time.extra_features());
    }
    template <backend B>
    void unpool(B& on, const backend_frame<B>& f, const time_pieces& p) const {
        const int features = time.text_features;
        const std::int64_t all = time.pooler_states();
        const std::int64_t rows = std::int64_t{f.batch} * time.positions();
        const linear_shape matrix = time.pooler().matrix();
        on.copy_rows(f.batch, time.pooled_features, f[p.djoined], time.extra_features(), f[p.dpooled],
                     time.pooled_features);
        time.pooled().apply_backward_weight(on, f.batch, f[p.mixed], f[p.dpooled], f.gradient(p.to_pooled));
        on.linear_backward_input(time.pooled().matrix(), f.batch, f[p.dpooled], f[p.to_pooled], f[p.dmixed],
                                 into::write);
        on.attention_backward(time.pooling(), f.batch, f[p.q], f[p.k], f[p.v], f[p.mixed], f[p.log_sums], f[p.dmixed],
                              f[p.dq], f[p.dk], f[p.dv]);
        time.pooler().apply_backward_weight(on, rows, f[p.states], f[p.dk], f.gradient(p.to_k));
        time.pooler().apply_backward_weight(on, rows, f[p.states], f[p.dv], f.gradient(p.to_v));
        on.copy_rows(f.batch, features, f[p.states], all, f[p.mean], features);
        time.pooler().apply_backward_weight(on, f.batch, f[p.mean], f[p.dq], f.gradient(p.to_q));
        on.linear_backward_input(matrix, rows, f[p.dk], f[p.to_k], f[p.dstates], into::write);
        on.linear_backward_input(matrix, rows, f[p.dv], f[p.to_v], f[p.dstates], into::add);
        on.linear_backward_input(matrix, f.batch, f[p.dq], f[p.to_q], f[p.dmean], into::write);
        on.sum_rows(f.batch, static_cast<int>(all), f[p.dstates], f.gradient(p.positions));
        on.sum_rows(f.batch, features, f[p.dmean], f.gradient(p.positions).again());
    }
    template <backend B>
    void add_style_and_sizes(B& on, const backend_frame<B>& f, const time_pieces& p) const {
        const std::int64_t all = time.extra_features();
        const std::int64_t waves = std::int64_t{time.image_sizes} * time.sinusoid;
        on.sinusoid(f.batch * time.image_sizes, time.sinusoid, true, 0.0, sizes_of(f), f[p.scratch]);
        on.copy_rows(f.batch, waves, f[p.scratch], waves, f[p.joined] + time.pooled_features, all);
        on.embedding(time.style(), f.batch, style_of(f), f[p.style], f[p.scratch]);
        on.copy_rows(f.batch, time.width, f[p.scratch], time.width, f[p.joined] + all - time.width, all);
    }
};

} // namespace pulse::nn
