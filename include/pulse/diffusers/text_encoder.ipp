#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/config_file.hpp>
#include <pulse/diffusers/config_key.hpp>
#include <pulse/diffusers/text_encoder.hpp>
#include <pulse/encode/bert_text.hpp>
#include <pulse/encode/clip_text.hpp>
#include <pulse/encode/t5_text.hpp>
#include <pulse/io/json_field.hpp>

namespace pulse::diffusers {

namespace detail {

/// The eos_token_id that both libraries assume for a CLIP config without one.
inline constexpr std::int32_t usual_end_token = 49407;

/// Keys of transformers' configs that do not change what an encoder computes from ids: types, names, initialisation,
/// labels, what is returned beside the states, how decoders generate. `more` are a class's own.
[[nodiscard]] inline std::vector<std::string_view> uncomputed_keys(std::initializer_list<std::string_view> more) {
    std::vector<std::string_view> all{
        "dtype", "torch_dtype", "transformers_version", "initializer_factor", "initializer_range", "torchscript",
        "use_bfloat16", "tf_legacy_loss", "attn_implementation", "gradient_checkpointing", "chunk_size_feed_forward",
        // of texts and labels
        "bos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id", "tokenizer_class", "prefix",
        "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params",
        "classifier_dropout",
        // of what is returned and of weights that an encoder has only once
        "return_dict", "output_attentions", "output_hidden_states", "output_past", "output_scores",
        "return_dict_in_generate", "use_cache", "tie_word_embeddings", "tie_encoder_decoder", "is_encoder_decoder",
        "cross_attention_hidden_size",
        // of generating
        "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
        "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "forced_bos_token_id",
        "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
        "begin_suppress_tokens"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

/// Keys that turn an encoder into something else, which every config of transformers may have.
[[nodiscard]] inline std::vector<config_key> encoder_keys() {
    return {{"is_decoder", false, false},
            {"add_cross_attention", false, false},
            {"pruned_heads", nlohmann::json::object(), nlohmann::json::object(), {nullptr}}};
}

} // namespace detail

PULSE_INLINE component_config config_of(const encode::clip_text_config& c) {
    const bool projects = c.projection_dim != 0;
    const nlohmann::json classes = nlohmann::json::array({projects ? "CLIPTextModelWithProjection" : "CLIPTextModel"});
    const char* const activation = c.hidden_act == encode::clip_activation::gelu ? "gelu" : "quick_gelu";
    component_config config{c.name.str()};
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
    config.unwritten = detail::encoder_keys();
    config.ignored = detail::uncomputed_keys({"attention_dropout", "dropout"});
    if (projects) {
        config.keys.push_back({"projection_dim", c.projection_dim, 512});
        // read_end_token() reads which id it is.
        config.keys.push_back({"eos_token_id", c.eos_token_id, detail::usual_end_token, {}, false, [](const auto& id) {
                                   return id.is_number_integer() && id >= 0 &&
                                          id <= std::numeric_limits<std::int32_t>::max();
                               }});
    } else {
        // Not read without a projection.
        config.ignored.insert(config.ignored.end(), {"projection_dim", "eos_token_id"});
    }
    return config;
}

PULSE_INLINE component_config config_of(const encode::bert_text_config& c) {
    component_config config{c.name.str()};
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
    config.unwritten = detail::encoder_keys();
    config.ignored = detail::uncomputed_keys({"attention_probs_dropout_prob", "hidden_dropout_prob", "directionality",
                                              "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
                                              "pooler_size_per_head", "pooler_type", "eos_token_id"});
    return config;
}

PULSE_INLINE component_config config_of(const encode::t5_text_config& c) {
    using nlohmann::json;
    component_config config{c.name.str()};
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
    config.unwritten = detail::encoder_keys();
    // If a file has these keys, they count instead of what feed_forward_proj implies.
    config.unwritten.push_back({"dense_act_fn", "gelu_new", "gelu_new"});
    config.unwritten.push_back({"is_gated_act", true, true});
    // Read only by decoders and training.
    config.ignored = detail::uncomputed_keys(
        {"dropout_rate", "n_positions", "num_decoder_layers", "scale_decoder_outputs", "eos_token_id"});
    return config;
}

PULSE_INLINE std::int32_t read_end_token(const std::filesystem::path& component) {
    const detail::config_file file{component / "config.json"};
    const io::json_field root = file.root();
    return root.has("eos_token_id") ? root["eos_token_id"].small_integer() : detail::usual_end_token;
}

} // namespace pulse::diffusers
