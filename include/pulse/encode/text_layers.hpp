#pragma once

#include <cmath>
#include <cstdint>

#include <pulse/encode/frozen_layer.hpp>
#include <pulse/encode/text_facts.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/linear_batch.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/text_backend.hpp>

namespace pulse::encode {

/// The activations of CLIP's text encoders.
enum class clip_activation : std::uint8_t { quick_gelu, gelu };

/// Sizes and epsilon of one layer of a text encoder.
struct text_layer {
    int tokens{};
    int width{};
    int hidden{}; ///< features between the two linear layers
    int heads{};
    int head_size{};
    double epsilon{};

    [[nodiscard]] constexpr nn::flaw defect() const noexcept {
        return tokens <= 0 || width <= 0 || hidden <= 0 || heads <= 0 || head_size <= 0 ? nn::flaw::size
                                                                                        : nn::flaw::none;
    }
    /// The defect of a layer whose heads must divide its width.
    [[nodiscard]] constexpr nn::flaw divided_defect() const noexcept {
        if (defect() != nn::flaw::none) { return defect(); }
        return heads * head_size != width ? nn::flaw::heads : nn::flaw::none;
    }
    [[nodiscard]] constexpr nn::sample_dims output() const noexcept { return {tokens, width, 0}; }
    [[nodiscard]] constexpr std::int64_t states() const noexcept { return std::int64_t{tokens} * width; }
    /// Elements of queries, keys or values.
    [[nodiscard]] constexpr std::int64_t inner() const noexcept { return std::int64_t{tokens} * heads * head_size; }
    [[nodiscard]] constexpr nn::linear to_inner() const noexcept { return {width, heads * head_size}; }
    [[nodiscard]] constexpr nn::linear from_inner() const noexcept { return {heads * head_size, width}; }
    [[nodiscard]] constexpr nn::linear widening() const noexcept { return {width, hidden}; }
    [[nodiscard]] constexpr nn::linear narrowing() const noexcept { return {hidden, width}; }
    [[nodiscard]] constexpr layer_norm_shape norm() const noexcept { return {width, epsilon}; }
    [[nodiscard]] constexpr attention_shape products() const noexcept { return {tokens, heads, head_size}; }
    [[nodiscard]] masked_attention_shape attention(double scale, bool causal) const noexcept {
        return {tokens, heads, head_size, scale, causal};
    }
    [[nodiscard]] double usual_scale() const noexcept { return 1.0 / std::sqrt(static_cast<double>(head_size)); }
};

/// y += weight x + bias; the bias follows the weight.
template <text_backend B>
void add_linear(B& on, const nn::linear& of, std::int64_t rows, const typename B::scalar* x,
                const typename B::scalar* weight, typename B::scalar* y) {
    on.linear(of.matrix(), rows, x, weight, weight + of.weight_elements(), y, into::add);
}

/// transformers' CLIPEncoderLayer: x += out_proj(attention(layer_norm1(x))), causal; x += fc2(f(fc1(layer_norm2(x)))).
struct clip_layer {
    text_layer core{};
    clip_activation activation{};

    [[nodiscard]] constexpr nn::flaw defect() const noexcept { return core.divided_defect(); }
    [[nodiscard]] constexpr nn::sample_dims output() const noexcept { return core.output(); }

    struct pieces {
        weight_piece to_k, to_v, to_q, to_out, norm1, fc1, fc2, norm2;
        workspace_piece normal, q, k, v; ///< normal also holds the heads' output
        workspace_piece hidden;
        statistics_piece statistics;
    };
    constexpr pieces describe(nn::description& d) const {
        pieces p{};
        const int tokens = core.tokens;
        p.to_k = d.linear("self_attn.k_proj", tokens, core.to_inner().matrix());
        p.to_v = d.linear("self_attn.v_proj", tokens, core.to_inner().matrix());
        p.to_q = d.linear("self_attn.q_proj", tokens, core.to_inner().matrix());
        p.to_out = d.linear("self_attn.out_proj", tokens, core.from_inner().matrix());
        p.norm1 = d.norm("layer_norm1", core.width);
        p.fc1 = d.linear("mlp.fc1", tokens, core.widening().matrix());
        p.fc2 = d.linear("mlp.fc2", tokens, core.narrowing().matrix());
        p.norm2 = d.norm("layer_norm2", core.width);
        d.attention(core.products());
        d.work(core.states(), p.normal);
        d.work(core.inner(), p.q, p.k, p.v);
        d.work_again(p.q);
        d.work(std::int64_t{tokens} * core.hidden, p.hidden);
        d.statistics(std::int64_t{2} * tokens, p.statistics);
        return p;
    }
    static constexpr int steps = 3;
    template <text_backend B>
    void forward(B& on, const frozen_frame<B>& f, const pieces& p, int step) const {
        const std::int64_t rows = std::int64_t{f.batch} * core.tokens;
        if (step == 0) {
            on.layer_norm(core.norm(), rows, f.input, f[p.norm1], f.bias(p.norm1), f[p.normal], f[p.statistics]);
            core.to_inner().apply(on, rows, f[p.normal], f[p.to_q], f[p.q]);
            core.to_inner().apply(on, rows, f[p.normal], f[p.to_k], f[p.k]);
            core.to_inner().apply(on, rows, f[p.normal], f[p.to_v], f[p.v]);
            return on.masked_attention(core.attention(core.usual_scale(), true), f.batch, f[p.q], f[p.k], f[p.v],
                                       nullptr, nullptr, f[p.normal]);
        }
        if (step == 2) { return add_linear(on, core.narrowing(), rows, f[p.hidden], f[p.fc2], f.output); }
        on.copy(f.batch * core.states(), f.input, f.output);
        add_linear(on, core.from_inner(), rows, f[p.normal], f[p.to_out], f.output);

        on.layer_norm(core.norm(), rows, f.output, f[p.norm2], f.bias(p.norm2), f[p.normal], f[p.statistics]);
        core.widening().apply(on, rows, f[p.normal], f[p.fc1], f[p.hidden]);
        if (activation == clip_activation::quick_gelu) {
            on.quick_gelu(rows * core.hidden, f[p.hidden], f[p.hidden]);
        } else {
            on.gelu(rows * core.hidden, f[p.hidden], f[p.hidden]);
        }
    }
};

/// transformers' BertLayer: a = norm(x + dense(attention(x))), y = norm(a + dense(gelu(dense(a)))); padding is masked.
struct bert_layer {
    text_layer core{};

    [[nodiscard]] constexpr nn::flaw defect() const noexcept { return core.divided_defect(); }
    [[nodiscard]] constexpr nn::sample_dims output() const noexcept { return core.output(); }

    struct pieces {
        weight_piece to_q, to_k, to_v, to_out, norm1, widening, narrowing, norm2;
        workspace_piece sum;    ///< what a norm reads
        workspace_piece states; ///< the heads' output, then a
        workspace_piece q, k, v, hidden;
        statistics_piece statistics;
    };
    constexpr pieces describe(nn::description& d) const {
        pieces p{};
        const int tokens = core.tokens;
        p.to_q = d.linear("attention.self.query", tokens, core.to_inner().matrix());
        p.to_k = d.linear("attention.self.key", tokens, core.to_inner().matrix());
        p.to_v = d.linear("attention.self.value", tokens, core.to_inner().matrix());
        p.to_out = d.linear("attention.output.dense", tokens, core.from_inner().matrix());
        p.norm1 = d.norm("attention.output.LayerNorm", core.width);
        p.widening = d.linear("intermediate.dense", tokens, core.widening().matrix());
        p.narrowing = d.linear("output.dense", tokens, core.narrowing().matrix());
        p.norm2 = d.norm("output.LayerNorm", core.width);
        d.attention(core.products());
        d.work(core.states(), p.sum, p.states);
        d.work(core.inner(), p.q, p.k, p.v);
        d.work_again(p.q);
        d.work(std::int64_t{tokens} * core.hidden, p.hidden);
        d.statistics(std::int64_t{2} * tokens, p.statistics);
        return p;
    }
    static constexpr int steps = 3;
    template <text_backend B>
    void forward(B& on, const frozen_frame<B>& f, const pieces& p, int step) const {
        const std::int64_t rows = std::int64_t{f.batch} * core.tokens;
        const std::int64_t n = f.batch * core.states();
        if (step == 0) {
            core.to_inner().apply(on, rows, f.input, f[p.to_q], f[p.q]);
            core.to_inner().apply(on, rows, f.input, f[p.to_k], f[p.k]);
            core.to_inner().apply(on, rows, f.input, f[p.to_v], f[p.v]);
            return on.masked_attention(core.attention(core.usual_scale(), false), f.batch, f[p.q], f[p.k], f[p.v],
                                       text_facts{core.tokens}.mask(f), nullptr, f[p.states]);
        }
        if (step == 2) {
            on.copy(n, f[p.states], f[p.sum]);
            add_linear(on, core.narrowing(), rows, f[p.hidden], f[p.narrowing], f[p.sum]);
            return on.layer_norm(core.norm(), rows, f[p.sum], f[p.norm2], f.bias(p.norm2), f.output, f[p.statistics]);
        }
        on.copy(n, f.input, f[p.sum]);
        add_linear(on, core.from_inner(), rows, f[p.states], f[p.to_out], f[p.sum]);
        on.layer_norm(core.norm(), rows, f[p.sum], f[p.norm1], f.bias(p.norm1), f[p.states], f[p.statistics]);

        core.widening().apply(on, rows, f[p.states], f[p.widening], f[p.hidden]);
        on.gelu(rows * core.hidden, f[p.hidden], f[p.hidden]);
    }
};

/// transformers' T5Block of an encoder with gated GELU: x += o(attention(norm(x))), scores biased by distance instead
/// of scaled; x += wo(gelu_tanh(wi_0(n)) wi_1(n)), n = norm(x). RMSNorm, no biases; padding is masked.
///
/// The first block owns the table of biases [buckets][heads], which all blocks read from frame.shared.
struct t5_block {
    text_layer core{};
    int buckets{};
    bool first{};

    [[nodiscard]] constexpr nn::flaw defect() const noexcept { return buckets <= 0 ? nn::flaw::size : core.defect(); }
    [[nodiscard]] constexpr nn::sample_dims output() const noexcept { return core.output(); }

    struct pieces {
        weight_piece to_q, to_k, to_v, to_out, table, norm1, gate, value, narrowing, norm2;
        workspace_piece normal, states; ///< states: the heads' output
        workspace_piece q, k, v, bias;
        workspace_piece gates, hidden;
    };
    constexpr pieces describe(nn::description& d) const {
        pieces p{};
        const int tokens = core.tokens;
        p.to_q = d.linear("layer.0.SelfAttention.q", tokens, core.to_inner().matrix(), false);
        p.to_k = d.linear("layer.0.SelfAttention.k", tokens, core.to_inner().matrix(), false);
        p.to_v = d.linear("layer.0.SelfAttention.v", tokens, core.to_inner().matrix(), false);
        p.to_out = d.linear("layer.0.SelfAttention.o", tokens, core.from_inner().matrix(), false);
        if (first) {
            p.table = d.weight("layer.0.SelfAttention.relative_attention_bias", {buckets, core.heads}, false);
        }
        p.norm1 = d.weight("layer.0.layer_norm", {core.width}, false);
        p.gate = d.linear("layer.1.DenseReluDense.wi_0", tokens, core.widening().matrix(), false);
        p.value = d.linear("layer.1.DenseReluDense.wi_1", tokens, core.widening().matrix(), false);
        p.narrowing = d.linear("layer.1.DenseReluDense.wo", tokens, core.narrowing().matrix(), false);
        p.norm2 = d.weight("layer.1.layer_norm", {core.width}, false);
        d.attention(core.products());
        d.work(core.states(), p.normal);
        d.work(core.inner(), p.states, p.q, p.k, p.v);
        d.work(distances() * core.heads, p.bias);
        d.work_again(p.states);
        d.work(std::int64_t{tokens} * core.hidden, p.gates, p.hidden);
        return p;
    }
    static constexpr int steps = 4;
    template <text_backend B>
    void forward(B& on, const frozen_frame<B>& f, const pieces& p, int step) const {
        const std::int64_t rows = std::int64_t{f.batch} * core.tokens;
        const text_facts facts{core.tokens};
        const auto add_product = [&](const nn::linear& of, const auto* x, weight_piece weight) {
            on.linear(of.matrix(), rows, x, f[weight], nullptr, f.output, into::add);
        };
        if (step == 0) {
            on.rms_norm(core.norm(), rows, f.input, f[p.norm1], f[p.normal]);
            nn::linear_batch(on, core.to_inner().matrix(), rows, f[p.normal],
                             {{f[p.to_q], f[p.q]}, {f[p.to_k], f[p.k]}, {f[p.to_v], f[p.v]}});
            on.embedding({buckets, core.heads}, distances(), facts.buckets(f), f.shared, f[p.bias]);
            return on.masked_attention(core.attention(1.0, false), f.batch, f[p.q], f[p.k], f[p.v], facts.mask(f),
                                       f[p.bias], f[p.states]);
        }
        if (step == 1) {
            on.copy(f.batch * core.states(), f.input, f.output);
            return add_product(core.from_inner(), f[p.states], p.to_out);
        }
        if (step == 3) { return add_product(core.narrowing(), f[p.hidden], p.narrowing); }
        on.rms_norm(core.norm(), rows, f.output, f[p.norm2], f[p.normal]);
        nn::linear_batch(on, core.widening().matrix(), rows, f[p.normal],
                         {{f[p.gate], f[p.gates]}, {f[p.value], f[p.hidden]}});
        on.gelu_tanh(rows * core.hidden, f[p.gates], f[p.gates]);
        on.gate(rows * core.hidden, f[p.gates], f[p.hidden]);
    }

private:
    [[nodiscard]] constexpr std::int64_t distances() const noexcept { return std::int64_t{2} * core.tokens - 1; }
};

} // namespace pulse::encode
