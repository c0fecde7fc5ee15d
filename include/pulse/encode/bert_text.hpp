#pragma once

#include <cstddef>

#include <pulse/core/label.hpp>
#include <pulse/encode/text_ends.hpp>
#include <pulse/encode/text_layers.hpp>
#include <pulse/encode/text_network.hpp>

namespace pulse::encode {

/// The structure of transformers' BertModel as a text encoder; fields are named as in BertConfig, except `tokens`, the
/// length of a text. Its states are last_hidden_state.
struct bert_text_config {
    label name{};
    int tokens{77};
    int vocab_size{};
    int hidden_size{};
    int intermediate_size{};
    int num_hidden_layers{};
    int num_attention_heads{};
    int max_position_embeddings{512};
    int type_vocab_size{2};
    double layer_norm_eps{1e-12};
};

/// BertModel's pooler, which never runs; a text_network lists it because checkpoints contain it.
struct bert_pooler {
    int width{};

    [[nodiscard]] constexpr nn::flaw defect() const noexcept { return width <= 0 ? nn::flaw::size : nn::flaw::none; }
    [[nodiscard]] constexpr nn::sample_dims output() const noexcept { return {width, 0, 0}; }
    constexpr weight_piece describe(nn::description& d) const { return d.linear("dense", 1, {width, width}); }
};

template <bert_text_config C>
struct bert_text_parts {
    static_assert(!C.name.empty(), "pulse: a bert_text_config needs a name");
    static_assert(C.num_hidden_layers > 0 && C.num_attention_heads > 0,
                  "pulse: a bert_text_config needs layers and heads");

    static constexpr label name = C.name;
    static constexpr auto depth = static_cast<std::size_t>(C.num_hidden_layers);
    static constexpr std::size_t count = depth + 2;
    static constexpr network_results results{depth + 1, depth};
    static constexpr bert_layer layer{{C.tokens, C.hidden_size, C.intermediate_size, C.num_attention_heads,
                                       C.hidden_size / C.num_attention_heads, C.layer_norm_eps}};

    template <std::size_t I>
    [[nodiscard]] static constexpr auto layer_of() {
        if constexpr (I == 0) {
            return frozen_layer<"embeddings",
                                bert_embedding{C.vocab_size, C.tokens, C.hidden_size, C.max_position_embeddings,
                                               C.type_vocab_size, C.layer_norm_eps}>{};
        } else if constexpr (I <= depth) {
            return frozen_layer<label{"encoder.layer."} + static_cast<unsigned>(I - 1), layer>{};
        } else {
            return frozen_layer<"pooler", bert_pooler{C.hidden_size}>{};
        }
    }
};

/// The text encoder that a bert_text_config describes, with transformers' parameter names. A bad config stops
/// compilation with one sentence.
template <bert_text_config C>
struct bert_text : text_network<bert_text_parts<C>> {
    static constexpr bert_text_config config = C;
    static constexpr int tokens = C.tokens;
    static constexpr int vocabulary = C.vocab_size;
};

} // namespace pulse::encode
