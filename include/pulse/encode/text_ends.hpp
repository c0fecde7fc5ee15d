#pragma once

#include <cstdint>
#include <string_view>

#include <pulse/encode/frozen_layer.hpp>
#include <pulse/encode/text_facts.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/text_backend.hpp>

namespace pulse::encode {

/// The first layer of a text encoder: the vector of each id, plus that of its position if there are positions.
///
/// CLIP has the parameters token_embedding and position_embedding; T5, which has no positions, only shared.
struct token_embedding {
    int vocabulary{};
    int tokens{};
    int width{};
    int positions{}; ///< vectors of positions, of which the first `tokens` are read; 0: none

    [[nodiscard]] constexpr nn::flaw defect() const noexcept {
        const bool placed = positions == 0 || positions >= tokens;
        return vocabulary <= 0 || tokens <= 0 || width <= 0 || !placed ? nn::flaw::size : nn::flaw::none;
    }
    [[nodiscard]] constexpr nn::sample_dims output() const noexcept { return {tokens, width, 0}; }

    struct pieces {
        weight_piece words, positions;
    };
    constexpr pieces describe(nn::description& d) const {
        pieces p{};
        p.words = d.weight(positions != 0 ? "token_embedding" : "", {vocabulary, width}, false);
        if (positions != 0) { p.positions = d.weight("position_embedding", {positions, width}, false); }
        return p;
    }
    template <text_backend B>
    void forward(B& on, const frozen_frame<B>& f, const pieces& p) const {
        on.embedding({vocabulary, width}, std::int64_t{f.batch} * tokens, text_facts{tokens}.ids(f), f[p.words],
                     f.output);
        if (positions != 0) { on.add_per_sample(1, f.batch, tokens * width, f[p.positions], f.output); }
    }
};

/// The first layer of BERT: norm(word + position + kind); all tokens are of the first kind.
struct bert_embedding {
    int vocabulary{};
    int tokens{};
    int width{};
    int positions{};
    int kinds{2};
    double epsilon{1e-12};

    [[nodiscard]] constexpr nn::flaw defect() const noexcept {
        return vocabulary <= 0 || tokens <= 0 || width <= 0 || positions < tokens || kinds <= 0 ? nn::flaw::size
                                                                                                : nn::flaw::none;
    }
    [[nodiscard]] constexpr nn::sample_dims output() const noexcept { return {tokens, width, 0}; }

    struct pieces {
        weight_piece words, positions, kinds, norm;
        workspace_piece sum;
        statistics_piece statistics;
    };
    constexpr pieces describe(nn::description& d) const {
        pieces p{};
        p.words = d.weight("word_embeddings", {vocabulary, width}, false);
        p.positions = d.weight("position_embeddings", {positions, width}, false);
        p.kinds = d.weight("token_type_embeddings", {kinds, width}, false);
        p.norm = d.norm("LayerNorm", width);
        d.work(std::int64_t{tokens} * width, p.sum);
        d.statistics(std::int64_t{2} * tokens, p.statistics);
        return p;
    }
    template <text_backend B>
    void forward(B& on, const frozen_frame<B>& f, const pieces& p) const {
        const int rows = f.batch * tokens;
        on.embedding({vocabulary, width}, rows, text_facts{tokens}.ids(f), f[p.words], f[p.sum]);
        on.add_per_sample(1, f.batch, tokens * width, f[p.positions], f[p.sum]);
        on.add_per_sample(1, rows, width, f[p.kinds], f[p.sum]);
        on.layer_norm({width, epsilon}, rows, f[p.sum], f[p.norm], f.bias(p.norm), f.output, f[p.statistics]);
    }
};

/// The norm after the last layer: LayerNorm (CLIP) or RMSNorm (T5).
struct final_norm {
    int tokens{};
    int width{};
    double epsilon{};
    bool rms{};

    [[nodiscard]] constexpr nn::flaw defect() const noexcept {
        return tokens <= 0 || width <= 0 ? nn::flaw::size : nn::flaw::none;
    }
    [[nodiscard]] constexpr nn::sample_dims output() const noexcept { return {tokens, width, 0}; }

    struct pieces {
        weight_piece norm;
        statistics_piece statistics;
    };
    constexpr pieces describe(nn::description& d) const {
        pieces p{};
        p.norm = d.weight("", {width}, !rms);
        d.statistics(rms ? 0 : std::int64_t{2} * tokens, p.statistics);
        return p;
    }
    template <text_backend B>
    void forward(B& on, const frozen_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = std::int64_t{f.batch} * tokens;
        if (rms) {
            on.rms_norm({width, epsilon}, rows, f.input, f[p.norm], f.output);
        } else {
            on.layer_norm({width, epsilon}, rows, f.input, f[p.norm], f.bias(p.norm), f.output, f[p.statistics]);
        }
    }
};

/// The pooled text: a linear layer without bias on one token of each text, its end, which text_facts name.
struct text_projection {
    int tokens{};
    int width{};
    int features{};

    [[nodiscard]] constexpr nn::flaw defect() const noexcept {
        return tokens <= 0 || width <= 0 || features <= 0 ? nn::flaw::size : nn::flaw::none;
    }
    [[nodiscard]] constexpr nn::sample_dims output() const noexcept { return {features, 0, 0}; }

    struct pieces {
        weight_piece weight;
        workspace_piece token;
    };
    constexpr pieces describe(nn::description& d) const {
        pieces p{};
        p.weight = d.linear("", 1, {width, features}, false);
        d.work(width, p.token);
        return p;
    }
    template <text_backend B>
    void forward(B& on, const frozen_frame<B>& f, const pieces& p) const {
        // The states are a table in which each text looks up one row.
        on.embedding({f.batch * tokens, width}, f.batch, text_facts{tokens}.rows(f), f.input, f[p.token]);
        on.linear({width, features}, f.batch, f[p.token], f[p.weight], nullptr, f.output, into::write);
    }
};

} // namespace pulse::encode
