#pragma once

#include <pulse/encode/known_text_encoders.hpp>

namespace pulse::test {

// Small text encoders of every family, and one layer of each published width, as transformers_states.py makes them.
namespace text {

using namespace pulse::encode;

inline constexpr clip_text_config clip{.name = "tiny_clip",
                                       .vocab_size = 99,
                                       .hidden_size = 24,
                                       .intermediate_size = 40,
                                       .num_hidden_layers = 3,
                                       .num_attention_heads = 3,
                                       .max_position_embeddings = 21};
inline constexpr clip_text_config sdxl = [] {
    clip_text_config c = clip;
    c.name = "tiny_sdxl";
    c.states_before = 1;
    return c;
}();
inline constexpr clip_text_config bigg = [] {
    clip_text_config c = sdxl;
    c.name = "tiny_bigg";
    c.projection_dim = 10;
    c.hidden_act = clip_activation::gelu;
    c.eos_token_id = 90;
    return c;
}();
inline constexpr bert_text_config bert{.name = "tiny_bert",
                                       .tokens = 21,
                                       .vocab_size = 99,
                                       .hidden_size = 24,
                                       .intermediate_size = 40,
                                       .num_hidden_layers = 2,
                                       .num_attention_heads = 3,
                                       .max_position_embeddings = 30};
inline constexpr t5_text_config mt5{.name = "tiny_mt5",
                                    .tokens = 45,
                                    .vocab_size = 99,
                                    .d_model = 24,
                                    .d_kv = 6,
                                    .d_ff = 40,
                                    .num_layers = 3,
                                    .num_heads = 3};
inline constexpr t5_text_config t5 = [] {
    t5_text_config c = mt5;
    c.name = "tiny_t5";
    c.relative_attention_num_buckets = 16;
    c.relative_attention_max_distance = 20;
    return c;
}();

/// One layer of a published encoder with a small vocabulary.
[[nodiscard]] constexpr clip_text_config one_layer(clip_text_config c, label name) noexcept {
    c.name = name;
    c.vocab_size = 300;
    c.num_hidden_layers = 1;
    c.states_before = 0;
    return c;
}
[[nodiscard]] constexpr bert_text_config one_layer(bert_text_config c, label name) noexcept {
    c.name = name;
    c.vocab_size = 300;
    c.num_hidden_layers = 1;
    return c;
}
[[nodiscard]] constexpr t5_text_config one_layer(t5_text_config c, label name) noexcept {
    c.name = name;
    c.tokens = 60;
    c.vocab_size = 300;
    c.num_layers = 1;
    return c;
}

} // namespace text

} // namespace pulse::test
