#pragma once

#include <nlohmann/json.hpp>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/text_encoder.hpp>
#include <pulse/encode/bert_text.hpp>
#include <pulse/encode/clip_text.hpp>
#include <pulse/encode/t5_text.hpp>

namespace pulse::diffusers {

PULSE_INLINE component_config config_of(const encode::clip_text_config& c) {
    const bool projects = c.projection_dim != 0;
    const nlohmann::json classes = nlohmann::json::array({projects ? "CLIPTextModelWithProjection" : "CLIPTextModel"});
    const char* const activation = c.hidden_act == encode::clip_activation::gelu ? "gelu" : "quick_gelu";
    component_config config{.model = c.name.str()};
    config.keys = {{"architectures", classes, nullptr, {}, true},
                   {"model_type", "clip_text_model", "clip_text_model"},
                   {"vocab_size", c.vocab_size, 49408},
                   {"hidden_size", c.hidden_size, 512},
                   {"intermediate_size", c.intermediate_size, 2048},
                   {"num_hidden_layers", c.num_hidden_layers, 12},
                   {"num_attention_heads", c.num_attention_heads, 8},
                   {"max_position_embeddings", c.max_position_embeddings, 77},
                   {"hidden_act", activation, "quick_gelu"},
                   {"layer_norm_eps", c.layer_norm_eps, 1e-5}};
    config.ignored = {"attention_dropout", "dropout",      "initializer_factor",   "initializer_range",
                      "bos_token_id",      "pad_token_id", "transformers_version", "torch_dtype"};
    if (projects) {
        config.keys.push_back({"projection_dim", c.projection_dim, 512});
        config.keys.push_back({"eos_token_id", c.eos_token_id, 2});
    } else {
        // Nothing reads them then.
        config.ignored.insert(config.ignored.end(), {"projection_dim", "eos_token_id"});
    }
    return config;
}

PULSE_INLINE component_config config_of(const encode::bert_text_config& c) {
    component_config config{.model = c.name.str()};
    config.keys = {{"architectures", {"BertModel"}, nullptr, {}, true},
                   {"model_type", "bert", "bert"},
                   {"vocab_size", c.vocab_size, 30522},
                   {"hidden_size", c.hidden_size, 768},
                   {"intermediate_size", c.intermediate_size, 3072},
                   {"num_hidden_layers", c.num_hidden_layers, 12},
                   {"num_attention_heads", c.num_attention_heads, 12},
                   {"max_position_embeddings", c.max_position_embeddings, 512},
                   {"type_vocab_size", c.type_vocab_size, 2},
                   {"hidden_act", "gelu", "gelu"},
                   {"layer_norm_eps", c.layer_norm_eps, 1e-12},
                   {"position_embedding_type", "absolute", "absolute"}};
    config.ignored = {"attention_probs_dropout_prob",
                      "hidden_dropout_prob",
                      "classifier_dropout",
                      "initializer_range",
                      "bos_token_id",
                      "eos_token_id",
                      "pad_token_id",
                      "directionality",
                      "output_past",
                      "use_cache",
                      "pooler_fc_size",
                      "pooler_num_attention_heads",
                      "pooler_num_fc_layers",
                      "pooler_size_per_head",
                      "pooler_type",
                      "transformers_version",
                      "torch_dtype"};
    return config;
}

PULSE_INLINE component_config config_of(const encode::t5_text_config& c) {
    using nlohmann::json;
    component_config config{.model = c.name.str()};
    config.keys = {{"architectures", {"T5EncoderModel"}, nullptr, {json::array({"MT5EncoderModel"})}, true},
                   {"model_type", "t5", "t5", {"mt5"}},
                   {"vocab_size", c.vocab_size, 32128},
                   {"d_model", c.d_model, 512},
                   {"d_kv", c.d_kv, 64},
                   {"d_ff", c.d_ff, 2048},
                   {"num_layers", c.num_layers, 6},
                   {"num_heads", c.num_heads, 8},
                   {"relative_attention_num_buckets", c.relative_attention_num_buckets, 32},
                   {"relative_attention_max_distance", c.relative_attention_max_distance, 128},
                   {"layer_norm_epsilon", c.layer_norm_epsilon, 1e-6},
                   {"feed_forward_proj", "gated-gelu", "relu"}};
    // What follows from others, and what decoders and training read.
    config.ignored = {"dense_act_fn",
                      "is_gated_act",
                      "dropout_rate",
                      "classifier_dropout",
                      "initializer_factor",
                      "is_encoder_decoder",
                      "num_decoder_layers",
                      "decoder_start_token_id",
                      "pad_token_id",
                      "eos_token_id",
                      "use_cache",
                      "output_past",
                      "tie_word_embeddings",
                      "tokenizer_class",
                      "transformers_version",
                      "torch_dtype"};
    return config;
}

} // namespace pulse::diffusers
