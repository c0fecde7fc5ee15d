#pragma once

#include <nlohmann/json.hpp>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/text_encoder.hpp>
#include <pulse/encode/clip_text.hpp>

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

} // namespace pulse::diffusers
