#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/text_encoder.hpp>
#include <pulse/encode/known_text_encoders.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/hunyuan_dit.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>
#include <pulse/zoo/uvit.hpp>

#include "folders.hpp"

namespace {

using namespace pulse;
using namespace pulse::diffusers;
using nlohmann::json;
using pulse::test::mentions;
using pulse::test::refusal_of;

std::vector<component_config> known_configs() {
    return {config_of(ddpm_cifar10::config),
            config_of(ddpm_fmnist::config),
            config_of(sd15::config),
            config_of(sd21::config),
            config_of(sdxl::config),
            config_of(uvit_s2::config),
            config_of(uvit_h2::config),
            config_of(hunyuan_dit_v11::config),
            config_of(hunyuan_dit_v12::config),
            config_of(encode::kl_f8(512)),
            config_of(encode::autoencoder_config{.name = "one", .block_out_channels = {64}})};
}

std::vector<component_config> known_text_configs() {
    return {config_of(encode::clip_vit_l), config_of(encode::openclip_vit_h), config_of(encode::openclip_vit_bigg)};
}

/// A different value of the same type.
json other_value(const json& value) {
    if (value.is_boolean()) { return !value.get<bool>(); }
    if (value.is_number_integer()) { return value.get<int>() + 2; }
    if (value.is_number()) { return value.get<double>() * 1.5 + 0.25; }
    if (value.is_string()) { return value.get<std::string>() + "x"; }
    if (value.is_null()) { return 3; }
    json changed = value;
    changed.back() = other_value(changed.back());
    return changed;
}

/// The published config of Stable Diffusion 1.5, written by an old version of diffusers.
const char* const published_sd15 = R"({
  "_class_name": "UNet2DConditionModel", "_diffusers_version": "0.6.0", "act_fn": "silu", "attention_head_dim": 8,
  "block_out_channels": [320, 640, 1280, 1280], "center_input_sample": false, "cross_attention_dim": 768,
  "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
  "downsample_padding": 1, "flip_sin_to_cos": true, "freq_shift": 0, "in_channels": 4, "layers_per_block": 2,
  "mid_block_scale_factor": 1, "norm_eps": 1e-05, "norm_num_groups": 32, "out_channels": 4, "sample_size": 64,
  "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"]})";

} // namespace

TEST_CASE("a config that is written describes the model, and no other of the zoo") {
    const std::vector<component_config> all = known_configs();
    for (const component_config& one : all) {
        const json file = json::parse(print_config(one));
        for (const component_config& other : all) {
            const std::string why = refusal_of([&] { require_fit(other, file, "'unet/config.json'"); });
            CAPTURE(one.model);
            CAPTURE(other.model);
            CHECK((why == "no refusal") == (one.model == other.model));
            if (one.model != other.model) { CHECK(mentions(why, {"'unet/config.json'", other.model.c_str()})); }
        }
    }
}

TEST_CASE("every key of every config matters: another value is refused with the key and both values") {
    std::vector<component_config> all = known_configs();
    for (component_config& one : known_text_configs()) { all.push_back(std::move(one)); }
    for (const component_config& one : all) {
        const json file = json::parse(print_config(one));
        for (const auto& [key, value] : file.items()) {
            if (key == "_class_name" || key == "eos_token_id") { continue; } // eos_token_id may be any
            if (key == "sample_size") { continue; }                          // only says what it was trained on
            json changed = file;
            changed[key] = other_value(value);
            CAPTURE(one.model);
            const std::string why = refusal_of([&] { require_fit(one, changed, "'unet/config.json'"); });
            CHECK(mentions(why, {"'unet/config.json': " + key + " is ", changed[key].dump(),
                                 "the compiled model " + one.model + " has " + value.dump()}));
        }
    }
}

TEST_CASE("a key that is absent has its class's value") {
    const component_config sd = config_of(sd21::config);
    json file = json::parse(print_config(sd));
    for (const char* const key : {"dropout", "attention_type", "conv_in_kernel", "layers_per_block", "sample_size"}) {
        file.erase(key);
    }
    CHECK_NOTHROW(require_fit(sd, file, "f"));
    file.erase("cross_attention_dim");
    CHECK(mentions(refusal_of([&] { require_fit(sd, file, "f"); }),
                   {"f: cross_attention_dim is missing, which means 1280", "sd21 has 1024"}));
    CHECK(mentions(refusal_of([&] { require_fit(sd, json::array(), "f"); }), {"f: the config must be an object"}));
    CHECK(mentions(refusal_of([&] { require_fit(sd, json{{"_class_name", 3}}, "f"); }), {"f: _class_name must be"}));
    CHECK(mentions(refusal_of([&] {
                       require_fit(sd, json{{"_class_name", "UNet2DModel"}}, "f");
                   }),
                   {"f: _class_name is 'UNet2DModel'", "sd21 has 'UNet2DConditionModel'"}));
}

TEST_CASE("a key that is not known is refused, one that changes nothing is not") {
    const component_config sd = config_of(sd21::config);
    json file = json::parse(print_config(sd));
    file["upcast_attention"] = true;
    file["_diffusers_version"] = "0.27.2";
    file["use_ema_warmup"] = true; // a setting of diffusers' EMAModel
    CHECK_NOTHROW(require_fit(sd, file, "f"));
    file["warp_factor"] = 9;
    CHECK(mentions(refusal_of([&] { require_fit(sd, file, "f"); }), {"f: warp_factor is 9", "sd21 does not know"}));
}

TEST_CASE("published configs fit: lists and single values mean the same") {
    const component_config sd = config_of(sd15::config);
    json file = json::parse(published_sd15);
    CHECK_NOTHROW(require_fit(sd, file, "f"));
    file["attention_head_dim"] = {8, 8, 8, 8};
    file["layers_per_block"] = {2, 2, 2, 2};
    file["act_fn"] = "swish";
    CHECK_NOTHROW(require_fit(sd, file, "f"));
    file["attention_head_dim"] = {8, 8, 8};
    CHECK(mentions(refusal_of([&] { require_fit(sd, file, "f"); }), {"attention_head_dim is [8,8,8]", "sd15 has 8"}));
    // SDXL's first level has no transformer, so its transformer settings are ignored.
    const component_config xl = config_of(sdxl::config);
    file = json::parse(print_config(xl));
    file["transformer_layers_per_block"] = {1, 2, 10};
    file["attention_head_dim"] = {5, 10, 20};
    CHECK_NOTHROW(require_fit(xl, file, "f"));
    file["transformer_layers_per_block"] = {1, 2, 9};
    CHECK(mentions(refusal_of([&] { require_fit(xl, file, "f"); }), {"transformer_layers_per_block is [1,2,9]"}));
    // Hunyuan-DiT's published ratio does not give its layer's width exactly.
    const component_config dit = config_of(hunyuan_dit_v12::config);
    file = json::parse(print_config(dit));
    CHECK(file["mlp_ratio"] == 4.3637);
    for (const double ratio : {4.3637, 6144.0 / 1408.0, 6144.9 / 1408.0}) {
        file["mlp_ratio"] = ratio;
        CHECK_NOTHROW(require_fit(dit, file, "f"));
    }
}

TEST_CASE("a UNet that diffusers has not is named") {
    unet_config c = sd21::config;
    c.mid_block_transformer_layers = 0;
    CHECK(mentions(refusal_of([&] { static_cast<void>(config_of(c)); }), {"sd21", "UNet2DConditionModel"}));
}

TEST_CASE("an autoencoder's pictures may have any size, and its latents one scale") {
    const component_config vae = config_of(encode::kl_f8(512));
    json file = json::parse(print_config(vae));
    file.erase("scaling_factor"); // as in old files, which imply the default
    file["sample_size"] = 256;
    file["force_upcast"] = true;
    file["use_quant_conv"] = true;
    CHECK_NOTHROW(require_fit(vae, file, "f"));
    file["use_quant_conv"] = false;
    CHECK(mentions(refusal_of([&] { require_fit(vae, file, "f"); }), {"f: use_quant_conv is false", "kl_f8 has true"}));
    file["use_quant_conv"] = true;
    CHECK(mentions(refusal_of([&] { require_fit(config_of(encode::kl_f8(512, 0.13025)), file, "f"); }),
                   {"f: scaling_factor is missing, which means 0.18215", "kl_f8 has 0.13025"}));
}

TEST_CASE("keys of transformers that change nothing of a frozen encoder are not read, those that do are refused") {
    const auto check = [](const component_config& config) {
        json file = json::parse(print_config(config));
        file.update(json::parse(R"({"dtype": "float16", "transformers_version": "5.24.0", "use_cache": true,
            "temperature": 0.7, "id2label": {"0": "LABEL_0"}, "tie_word_embeddings": true, "initializer_range": 0.5,
            "output_hidden_states": true, "is_decoder": false, "pruned_heads": {}})"));
        CHECK_NOTHROW(require_fit(config, file, "f"));
        const json changing = json::parse(R"({"is_decoder": true, "add_cross_attention": true,
            "pruned_heads": {"0": [1]}, "quantization_config": {"bits": 4}, "a_key_of_tomorrow": 1})");
        for (const auto& [key, value] : changing.items()) {
            json other = file;
            other[key] = value;
            CHECK(
                mentions(refusal_of([&] { require_fit(config, other, "f"); }), {"f: " + key + " is " + value.dump()}));
        }
    };
    check(config_of(encode::clip_vit_l));
    check(config_of(encode::openclip_vit_bigg));
    check(config_of(encode::bert_text_config{.name = "bert"}));
    const component_config t5 = config_of(encode::t5_text_config{.name = "t5"});
    check(t5);
    json file = json::parse(print_config(t5));
    file.update({{"dense_act_fn", "gelu_new"}, {"is_gated_act", true}});
    CHECK_NOTHROW(require_fit(t5, file, "f"));
    file["dense_act_fn"] = "relu"; // unlike the others, not implied by feed_forward_proj
    CHECK(mentions(refusal_of([&] { require_fit(t5, file, "f"); }), {"f: dense_act_fn is \"relu\""}));
}

TEST_CASE("a text encoder that pools may end texts by any id, which is read of its config") {
    const pulse::test::scratch folder;
    const component_config config = config_of(encode::openclip_vit_bigg);
    json file = json::parse(print_config(config));
    const auto read = [&] {
        pulse::test::put(folder.path / "config.json", file.dump());
        require_fit(config, folder.path);
        return read_end_token(folder.path);
    };
    CHECK(read() == encode::openclip_vit_bigg.eos_token_id);
    for (const int id : {0, 2, 7, 49407}) {
        file["eos_token_id"] = id;
        CHECK(read() == id);
    }
    file.erase("eos_token_id");
    CHECK(read() == 49407); // today's default of both libraries
    for (const json& bad : {json{49407, 2}, json(-1), json(4294967296), json(nullptr), json("2")}) {
        file["eos_token_id"] = bad;
        CHECK(mentions(refusal_of(read), {"config.json': eos_token_id is " + bad.dump()}));
    }
}

TEST_CASE("published configs of text encoders fit, and no other does") {
    // Stable Diffusion 2.1's config, by transformers 4.25
    const json file = json::parse(R"({
      "_name_or_path": "hf-models/stable-diffusion-v2-768x768/text_encoder", "architectures": ["CLIPTextModel"],
      "attention_dropout": 0.0, "bos_token_id": 0, "dropout": 0.0, "eos_token_id": 2, "hidden_act": "gelu",
      "hidden_size": 1024, "initializer_factor": 1.0, "initializer_range": 0.02, "intermediate_size": 4096,
      "layer_norm_eps": 1e-05, "max_position_embeddings": 77, "model_type": "clip_text_model",
      "num_attention_heads": 16, "num_hidden_layers": 23, "pad_token_id": 1, "projection_dim": 512,
      "torch_dtype": "float32", "transformers_version": "4.25.0.dev0", "vocab_size": 49408})");
    CHECK_NOTHROW(require_fit(config_of(encode::openclip_vit_h), file, "f"));
    CHECK(mentions(refusal_of([&] { require_fit(config_of(encode::clip_vit_l), file, "f"); }),
                   {"f: hidden_size is 1024", "clip_vit_l has 768"}));
    CHECK(mentions(refusal_of([&] { require_fit(config_of(encode::openclip_vit_bigg), file, "f"); }),
                   {"f: architectures is [\"CLIPTextModel\"]", "CLIPTextModelWithProjection"}));
}
