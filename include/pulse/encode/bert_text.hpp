#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <pulse/core/label.hpp>
#include <pulse/encode/text_ends.hpp>
#include <pulse/encode/text_layers.hpp>
#include <pulse/encode/text_network.hpp>

namespace pulse::encode {

/// The structure of transformers' BertModel as a text encoder; fields are named as BertConfig's, but for `tokens`, the
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

/// BertModel's pooler, which nobody reads: it is in checkpoints, and a text_network lists it.
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
                  "pulse: a bert_text_config has layers and heads");

    static constexpr auto depth = static_cast<std::size_t>(C.num_hidden_layers);
    static constexpr network_results results{depth + 1, depth};
    static constexpr bert_layer layer{{C.tokens, C.hidden_size, C.intermediate_size, C.num_attention_heads,
                                       C.hidden_size / C.num_attention_heads, C.layer_norm_eps}};

    template <std::size_t I>
    [[nodiscard]] static constexpr auto layer_type() {
        if constexpr (I == 0) {
            return std::type_identity<frozen_layer<
                "embeddings", bert_embedding{C.vocab_size, C.tokens, C.hidden_size, C.max_position_embeddings,
                                             C.type_vocab_size, C.layer_norm_eps}>>{};
        } else if constexpr (I <= depth) {
            return std::type_identity<frozen_layer<label{"encoder.layer."} + static_cast<unsigned>(I - 1), layer>>{};
        } else {
            return std::type_identity<frozen_layer<"pooler", bert_pooler{C.hidden_size}>>{};
        }
    }
    template <std::size_t... I>
    static text_network<C.name, results, typename decltype(layer_type<I>())::type...> assemble(
        std::index_sequence<I...>);
    using chain = decltype(assemble(std::make_index_sequence<depth + 2>{}));
};

/// The text encoder that a bert_text_config describes, with transformers' parameter names. A bad config stops
/// compilation with one sentence.
template <bert_text_config C>
struct bert_text : bert_text_parts<C>::chain {
    static constexpr bert_text_config config = C;
    static constexpr int tokens = C.tokens;
    static constexpr int vocabulary = C.vocab_size;
    static constexpr std::int64_t shared_at = -1; ///< no parameter is shared

    /// Nothing is pooled.
    static constexpr std::int32_t end_token = 0;
    [[nodiscard]] static constexpr std::size_t end_of(std::span<const std::int32_t>, std::int32_t) noexcept {
        return 0;
    }
    [[nodiscard]] static constexpr int bucket_of(int) noexcept { return 0; }
};

} // namespace pulse::encode
