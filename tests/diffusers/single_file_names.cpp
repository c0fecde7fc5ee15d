#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/single_file.hpp>
#include <pulse/diffusers/single_file_writer.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/io/safetensors.hpp>

#include "folders.hpp"

namespace {

using namespace pulse;
using namespace pulse::diffusers;
using namespace pulse::test;

/// The parts of a pipeline's configs that determine tensor names.
void write_configs(const fs::path& folder, const std::string& pipeline, const std::string& unet,
                   const std::string& text) {
    for (const char* const component : {"unet", "vae", "text_encoder", "text_encoder_2"}) {
        fs::create_directories(folder / component);
    }
    put(folder / "model_index.json",
        R"({"_class_name": ")" + pipeline + R"(", "unet": ["diffusers", "UNet2DConditionModel"],
            "vae": ["diffusers", "AutoencoderKL"], "text_encoder": ["transformers", "CLIPTextModel"],
            "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"]})");
    put(folder / "unet/config.json", unet);
    put(folder / "vae/config.json", R"({"block_out_channels": [128, 256, 512, 512], "layers_per_block": 2})");
    put(folder / "text_encoder/config.json", text);
    put(folder / "text_encoder_2/config.json",
        R"({"architectures": ["CLIPTextModelWithProjection"], "num_hidden_layers": 32, "hidden_act": "gelu"})");
}
constexpr const char* unet_of_sd = R"({"block_out_channels": [320, 640, 1280, 1280], "layers_per_block": 2,
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"]})";
constexpr const char* unet_of_sdxl = R"({"block_out_channels": [320, 640, 1280], "layers_per_block": 2,
    "addition_embed_type": "text_time", "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"]})";
constexpr const char* clip = R"({"hidden_act": "quick_gelu", "num_hidden_layers": 12})";
constexpr const char* open_clip = R"({"hidden_act": "gelu", "num_hidden_layers": 23})";

using names = std::vector<std::pair<std::string_view, std::string_view>>;

/// Checks that the name pairs of a component convert both ways.
void check_names(const fs::path& folder, const char* component, const names& pairs) {
    const single_file_layout layout{folder, component};
    for (const auto& pair : pairs) {
        const auto& [stored, own] = pair;
        CAPTURE(pair.first);
        const std::vector<stored_tensor> found = layout.tensors_in(stored);
        REQUIRE(found.size() == 1);
        CHECK(found[0].name == own);
        CHECK(layout.place_of(own).name == stored);
        CHECK(layout.place_of(own).part == -1);
    }
}

} // namespace

TEST_CASE("names in checkpoints of one file are those that were published") {
    const scratch folder;
    const fs::path sd1 = folder.path / "sd1";
    const fs::path sd2 = folder.path / "sd2";
    const fs::path sdxl = folder.path / "sdxl";
    write_configs(sd1, "StableDiffusionPipeline", unet_of_sd, clip);
    write_configs(sd2, "StableDiffusionPipeline", unet_of_sd, open_clip);
    write_configs(sdxl, "StableDiffusionXLPipeline", unet_of_sdxl, clip);
    check_names(
        sd1, "unet",
        {{"model.diffusion_model.input_blocks.0.0.bias", "conv_in.bias"},
         {"model.diffusion_model.time_embed.2.weight", "time_embedding.linear_2.weight"},
         {"model.diffusion_model.input_blocks.3.0.op.weight", "down_blocks.0.downsamplers.0.conv.weight"},
         {"model.diffusion_model.input_blocks.4.0.skip_connection.bias", "down_blocks.1.resnets.0.conv_shortcut.bias"},
         {"model.diffusion_model.input_blocks.8.1.transformer_blocks.0.ff.net.0.proj.weight",
          "down_blocks.2.attentions.1.transformer_blocks.0.ff.net.0.proj.weight"},
         {"model.diffusion_model.input_blocks.11.0.emb_layers.1.weight",
          "down_blocks.3.resnets.1.time_emb_proj.weight"},
         {"model.diffusion_model.middle_block.1.proj_in.weight", "mid_block.attentions.0.proj_in.weight"},
         {"model.diffusion_model.middle_block.2.out_layers.3.weight", "mid_block.resnets.1.conv2.weight"},
         {"model.diffusion_model.output_blocks.2.1.conv.weight", "up_blocks.0.upsamplers.0.conv.weight"},
         {"model.diffusion_model.output_blocks.3.0.in_layers.2.weight", "up_blocks.1.resnets.0.conv1.weight"},
         {"model.diffusion_model.output_blocks.5.2.conv.bias", "up_blocks.1.upsamplers.0.conv.bias"},
         {"model.diffusion_model.output_blocks.11.1.norm.weight", "up_blocks.3.attentions.2.norm.weight"},
         {"model.diffusion_model.out.2.weight", "conv_out.weight"}});
    check_names(sdxl, "unet",
                {{"model.diffusion_model.label_emb.0.2.weight", "add_embedding.linear_2.weight"},
                 {"model.diffusion_model.output_blocks.2.2.conv.weight", "up_blocks.0.upsamplers.0.conv.weight"},
                 {"model.diffusion_model.output_blocks.8.0.out_layers.0.bias", "up_blocks.2.resnets.2.norm2.bias"}});
    check_names(
        sd1, "vae",
        {{"first_stage_model.quant_conv.weight", "quant_conv.weight"},
         {"first_stage_model.encoder.conv_in.weight", "encoder.conv_in.weight"},
         {"first_stage_model.encoder.down.2.downsample.conv.bias", "encoder.down_blocks.2.downsamplers.0.conv.bias"},
         {"first_stage_model.encoder.down.1.block.0.nin_shortcut.weight",
          "encoder.down_blocks.1.resnets.0.conv_shortcut.weight"},
         {"first_stage_model.decoder.up.3.block.2.conv1.weight", "decoder.up_blocks.0.resnets.2.conv1.weight"},
         {"first_stage_model.decoder.up.1.upsample.conv.weight", "decoder.up_blocks.2.upsamplers.0.conv.weight"},
         {"first_stage_model.decoder.mid.attn_1.proj_out.weight", "decoder.mid_block.attentions.0.to_out.0.weight"},
         {"first_stage_model.decoder.mid.block_2.norm2.bias", "decoder.mid_block.resnets.1.norm2.bias"},
         {"first_stage_model.decoder.norm_out.weight", "decoder.conv_norm_out.weight"}});
    CHECK(single_file_layout{sd1, "vae"}.place_of("encoder.mid_block.attentions.0.query.weight").name ==
          "first_stage_model.encoder.mid.attn_1.q.weight"); // before diffusers 0.18
    check_names(
        sd1, "text_encoder",
        {{"cond_stage_model.transformer.text_model.final_layer_norm.bias", "text_model.final_layer_norm.bias"}});
    check_names(sdxl, "text_encoder",
                {{"conditioner.embedders.0.transformer.text_model.encoder.layers.11.mlp.fc1.weight",
                  "text_model.encoder.layers.11.mlp.fc1.weight"}});
    check_names(sd2, "text_encoder",
                {{"cond_stage_model.model.positional_embedding", "text_model.embeddings.position_embedding.weight"},
                 {"cond_stage_model.model.ln_final.weight", "text_model.final_layer_norm.weight"},
                 {"cond_stage_model.model.transformer.resblocks.22.mlp.c_proj.bias",
                  "text_model.encoder.layers.22.mlp.fc2.bias"}});
    check_names(
        sdxl, "text_encoder_2",
        {{"conditioner.embedders.1.model.text_projection", "text_projection.weight"},
         {"conditioner.embedders.1.model.token_embedding.weight", "text_model.embeddings.token_embedding.weight"},
         {"conditioner.embedders.1.model.transformer.resblocks.31.ln_2.weight",
          "text_model.encoder.layers.31.layer_norm2.weight"}});
    // The refiner has only the second text encoder.
    const fs::path refiner = folder.path / "refiner";
    write_configs(refiner, "StableDiffusionXLImg2ImgPipeline", unet_of_sdxl, clip);
    put(refiner / "model_index.json", R"({"_class_name": "StableDiffusionXLImg2ImgPipeline",
        "unet": ["diffusers", "UNet2DConditionModel"], "text_encoder": [null, null],
        "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"]})");
    check_names(refiner, "text_encoder_2",
                {{"conditioner.embedders.0.model.text_projection", "text_projection.weight"}});
    CHECK(mentions(refusal_of([&] { static_cast<void>(single_file_layout{refiner, "vae"}); }), {"vae is missing"}));
    CHECK(mentions(refusal_of([&] {
                       static_cast<void>(single_file_layout{refiner, "image_encoder"});
                   }),
                   {"image_encoder is missing"}));
    const single_file_layout text{sdxl, "text_encoder_2"};
    CHECK(mentions(refusal_of([&] { static_cast<void>(text.place_of("text_model.head.weight")); }),
                   {"no place for the tensor 'text_model.head.weight'"}));
    CHECK(text.tensors_in("conditioner.embedders.1.model.logit_scale").empty());
    const std::vector<stored_tensor> parts =
        text.tensors_in("conditioner.embedders.1.model.transformer.resblocks.3.attn.in_proj_bias");
    REQUIRE(parts.size() == 3);
    CHECK(parts[1].name == "text_model.encoder.layers.3.self_attn.k_proj.bias");
    CHECK(parts[1].part == 1);
    const stored_tensor value = text.place_of("encoder.layers.3.self_attn.v_proj.weight"); // transformers 5.6 and later
    CHECK(value.name == "conditioner.embedders.1.model.transformer.resblocks.3.attn.in_proj_weight");
    CHECK(value.part == 2);
    // 2.x does not read the last layer's states.
    CHECK(single_file_layout{sd2, "text_encoder"}
              .tensors_in("cond_stage_model.model.transformer.resblocks.23.ln_1.bias")
              .empty());
}

TEST_CASE("checkpoints of one file that are not what they should be are refused in one line") {
    const scratch folder;
    const fs::path sd2 = folder.path / "sd2";
    write_configs(sd2, "StableDiffusionPipeline", unet_of_sd, open_clip);
    const fs::path file = folder.path / "model.safetensors";
    const std::vector<std::byte> zeros(96);
    const auto write = [&](std::vector<std::pair<std::string, std::vector<std::int64_t>>> tensors) {
        std::vector<io::tensor_source> all;
        for (auto& [name, dims] : tensors) {
            std::size_t elements = 1;
            for (const std::int64_t extent : dims) { elements *= static_cast<std::size_t>(extent); }
            all.push_back({name, io::f32, dims, std::span{zeros}.first(4 * elements)});
        }
        io::write_safetensors(file, all);
    };
    const auto refusal = [&](const char* component) {
        return refusal_of([&] { static_cast<void>(weights{{sd2, file}, component}); });
    };
    const std::string layer = "cond_stage_model.model.transformer.resblocks.0.attn.in_proj_bias";
    write({{layer, {6}}, {"first_stage_model.encoder.mid.attn_1.q.weight", {2, 3, 1, 1}}});
    CHECK(weights({sd2, file}, "text_encoder").tensors().size() == 3);
    CHECK((weights({sd2, file}, "vae").tensors().begin()->second.entry->dims == std::vector<std::int64_t>{2, 3}));
    CHECK(mentions(refusal("unet"), {"model.safetensors' (unet)", "'model.diffusion_model.*'", "sd2'"}));
    const std::string whole = bytes_of(file);
    // Damage to any byte of the header or of its length gives tensors or a one-line error.
    const std::size_t header = 8 + static_cast<unsigned char>(whole[0]) + 256U * static_cast<unsigned char>(whole[1]);
    int refused = 0;
    for (std::size_t at = 0; at != header; ++at) {
        for (const char with : {'\0', '"', '9', '\xff'}) {
            std::string damaged = whole;
            damaged[at] = with;
            put(file, damaged);
            for (const char* const component : {"vae", "text_encoder"}) {
                refused += refusal(component) == "no refusal" ? 0 : 1;
            }
        }
    }
    CHECK(refused > 2 * static_cast<int>(header)); // out of 8 tries per byte
    CHECK(refused < 8 * static_cast<int>(header));
    put(file, whole.substr(0, whole.size() - 1));
    CHECK(mentions(refusal("vae"), {"model.safetensors'"}));

    write({{layer, {7}}});
    CHECK(mentions(refusal("text_encoder"), {"resblocks.0.attn.in_proj_bias' does not have three equal parts"}));
    write({{"cond_stage_model.model.positional_embedding", {2}},
           {"cond_stage_model.model.positional_embedding.weight", {2}}});
    CHECK(refusal("text_encoder") == "no refusal"); // the second is another tensor, which nobody requests
    write(
        {{"first_stage_model.encoder.norm_out.weight", {2}}, {"first_stage_model.encoder.conv_norm_out.weight", {2}}});
    CHECK(mentions(refusal("vae"), {"'encoder.conv_norm_out.weight' occurs twice"}));
    CHECK(mentions(refusal_of([&] {
                       static_cast<void>(weights{{sd2, folder.path / "model.ckpt"}, "unet"});
                   }),
                   {"model.ckpt' is not a .safetensors file"}));
    CHECK(mentions(refusal_of([&] { require_single_file({sd2, file}, folder.path / "sd2"); }), {"is a folder"}));
    const auto may_become = [&](const char* to) {
        return refusal_of([&] { require_single_file({sd2, file}, folder.path / to); });
    };
    CHECK(mentions(may_become("model.safetensors"),
                   {"model.safetensors' is not a checkpoint of one file", "not replaced"}));
    CHECK(may_become("sd2/other.safetensors") == "no refusal");
    CHECK(mentions(may_become("sd2/unet/model.safetensors"), {"is inside a component of", "sd2'"}));
    put(sd2 / "model_index.json", R"({"_class_name": "DDPMPipeline", "unet": ["diffusers", "UNet2DModel"]})");
    CHECK(mentions(refusal("unet"), {"model_index.json'", "the class DDPMPipeline"}));
}
