#pragma once

#include <pulse/encode/bert_text.hpp>
#include <pulse/encode/clip_text.hpp>
#include <pulse/encode/t5_text.hpp>

namespace pulse::encode {

/// openai/clip-vit-large-patch14's text encoder, as Stable Diffusion 1.x reads it: 123,060,480 parameters.
inline constexpr clip_text_config clip_vit_l{.name = "clip_vit_l",
                                             .hidden_size = 768,
                                             .intermediate_size = 3072,
                                             .num_hidden_layers = 12,
                                             .num_attention_heads = 12};
/// The same network as SDXL reads it: hidden_states[-2].
inline constexpr clip_text_config clip_vit_l_sdxl = [] {
    clip_text_config c = clip_vit_l;
    c.name = "clip_vit_l_sdxl";
    c.states_before = 1;
    return c;
}();
/// OpenCLIP ViT-H/14's text encoder as Stable Diffusion 2.x publishes it, without its last layer: 340,387,840
/// parameters.
inline constexpr clip_text_config openclip_vit_h{.name = "openclip_vit_h",
                                                 .hidden_size = 1024,
                                                 .intermediate_size = 4096,
                                                 .num_hidden_layers = 23,
                                                 .num_attention_heads = 16,
                                                 .hidden_act = clip_activation::gelu};
/// OpenCLIP ViT-bigG/14's text encoder as SDXL reads it: hidden_states[-2] and the pooled, projected text; 694,659,840
/// parameters.
inline constexpr clip_text_config openclip_vit_bigg{.name = "openclip_vit_bigg",
                                                    .hidden_size = 1280,
                                                    .intermediate_size = 5120,
                                                    .num_hidden_layers = 32,
                                                    .num_attention_heads = 20,
                                                    .projection_dim = 1280,
                                                    .hidden_act = clip_activation::gelu,
                                                    .states_before = 1};
/// Hunyuan-DiT's bilingual CLIP, a BERT: 352,035,840 parameters, including the pooler's, which are never read.
inline constexpr bert_text_config hunyuan_clip{.name = "hunyuan_clip",
                                               .vocab_size = 47020,
                                               .hidden_size = 1024,
                                               .intermediate_size = 4096,
                                               .num_hidden_layers = 24,
                                               .num_attention_heads = 16};
/// The encoder of mT5-XL as Hunyuan-DiT reads it: 1,669,958,656 parameters.
inline constexpr t5_text_config mt5_xl{.name = "mt5_xl",
                                       .tokens = 256,
                                       .vocab_size = 250112,
                                       .d_model = 2048,
                                       .d_ff = 5120,
                                       .num_layers = 24,
                                       .num_heads = 32};
/// The encoder of T5 v1.1 XXL with 512 tokens, as FLUX reads it: 4,762,310,656 parameters.
inline constexpr t5_text_config t5_xxl{.name = "t5_xxl",
                                       .tokens = 512,
                                       .vocab_size = 32128,
                                       .d_model = 4096,
                                       .d_ff = 10240,
                                       .num_layers = 24,
                                       .num_heads = 64};

} // namespace pulse::encode
