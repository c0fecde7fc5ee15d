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

/// Another value of the same kind.
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

/// The published config of Stable Diffusion 1.5, by an old version of diffusers.
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
        const json changing{{"is_decoder", true},
                            {"add_cross_attention", true},
                            {"pruned_heads", {{"0", {1}}}},
                            {"quantization_config", {{"bits", 4}}},
                            {"a_key_of_tomorrow", 1}};
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
    check(config_of(encode::t5_text_config{.name = "t5"}));
}

TEST_CASE("a text encoder that pools may end texts by any id, which is read of its config") {
    const scratch folder;
    const component_config config = config_of(encode::openclip_vit_bigg);
    json file = json::parse(print_config(config));
    const auto read = [&] {
        put(folder.path / "config.json", file.dump());
        require_fit(config, folder.path);
        return read_end_token(folder.path);
    };
    CHECK(read() == encode::openclip_vit_bigg.eos_token_id);
    for (const int id : {0, 2, 7, 49407}) {
        file["eos_token_id"] = id;
        CHECK(read() == id);
    }
    file.erase("eos_token_id");
    CHECK(read() == 49407); // as both libraries have it today
    for (const json& bad : {json{49407, 2}, json(-1), json(4294967296), json(nullptr), json("2")}) {
        file["eos_token_id"] = bad;
        CHECK(mentions(refusal_of(read), {"config.json': eos_token_id is " + bad.dump()}));
    }
}

TEST_CASE("published configs of text encoders fit, and no other does") {
    // Stable Diffusion 2.1's, by transformers 4.25
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
