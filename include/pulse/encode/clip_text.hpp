#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/core/label.hpp>
#include <pulse/encode/text_ends.hpp>
#include <pulse/encode/text_layers.hpp>
#include <pulse/encode/text_network.hpp>

namespace pulse::encode {

/// The structure of transformers' CLIPTextModel or CLIPTextModelWithProjection; fields are named as in CLIPTextConfig.
///
/// Unlike in CLIPTextConfig, projection_dim is 0 without projection, and states_before says which states are returned:
/// 0: those of the last layer after final_layer_norm, n: hidden_states[-1 - n], without the norm.
struct clip_text_config {
    label name{};
    int vocab_size{49408};
    int hidden_size{};
    int intermediate_size{};
    int num_hidden_layers{};
    int num_attention_heads{};
    int max_position_embeddings{77};
    int projection_dim{};
    clip_activation hidden_act{clip_activation::quick_gelu};
    double layer_norm_eps{1e-5};
    int eos_token_id{2}; ///< 2, which is wrong in most configs, means that a text ends at its greatest id
    int states_before{};
};

template <clip_text_config C>
struct clip_text_parts {
    static_assert(!C.name.empty(), "pulse: a clip_text_config needs a name");
    static_assert(C.num_hidden_layers > 0 && C.num_attention_heads > 0,
                  "pulse: a clip_text_config needs layers and heads");
    static_assert(C.states_before >= 0 && C.states_before < C.num_hidden_layers,
                  "pulse: states_before of a clip_text_config must be less than num_hidden_layers");

    static constexpr label name = C.name;
    static constexpr auto depth = static_cast<std::size_t>(C.num_hidden_layers);
    static constexpr auto before = static_cast<std::size_t>(C.states_before);
    static constexpr bool projects = C.projection_dim != 0;
    static constexpr std::size_t count = depth + (projects ? 3 : 2);
    /// Layer 0 is the embedding.
    static constexpr std::size_t states = before == 0 ? depth + 1 : depth - before;
    static constexpr network_results results{projects ? count : states + 1, states};
    static constexpr clip_layer layer{{C.max_position_embeddings, C.hidden_size, C.intermediate_size,
                                       C.num_attention_heads, C.hidden_size / C.num_attention_heads, C.layer_norm_eps},
                                      C.hidden_act};

    template <std::size_t I>
    [[nodiscard]] static constexpr auto layer_of() {
        constexpr int tokens = C.max_position_embeddings;
        if constexpr (I == 0) {
            return frozen_layer<"text_model.embeddings",
                                token_embedding{C.vocab_size, tokens, C.hidden_size, tokens}>{};
        } else if constexpr (I <= depth) {
            return frozen_layer<label{"text_model.encoder.layers."} + static_cast<unsigned>(I - 1), layer>{};
        } else if constexpr (I == depth + 1) {
            return frozen_layer<"text_model.final_layer_norm", final_norm{tokens, C.hidden_size, C.layer_norm_eps}>{};
        } else {
            return frozen_layer<"text_projection", text_projection{tokens, C.hidden_size, C.projection_dim}>{};
        }
    }
};

/// The text encoder that a clip_text_config describes, with transformers' parameter names. A bad config stops
/// compilation with one sentence.
template <clip_text_config C>
struct clip_text : text_network<clip_text_parts<C>> {
    static constexpr clip_text_config config = C;
    static constexpr int tokens = C.max_position_embeddings;
    static constexpr int vocabulary = C.vocab_size;
    static constexpr std::int32_t end_token = C.eos_token_id;

    /// Index of the token whose states are pooled: the text's end by eos_token_id, or 0 if there is none.
    [[nodiscard]] static std::size_t end_of(std::span<const std::int32_t> ids,
                                            std::int32_t eos_token_id = end_token) noexcept {
        const auto end = eos_token_id == 2 ? std::max_element(ids.begin(), ids.end())
                                           : std::find(ids.begin(), ids.end(), eos_token_id);
        return end == ids.end() ? 0 : static_cast<std::size_t>(end - ids.begin());
    }
};

} // namespace pulse::encode
