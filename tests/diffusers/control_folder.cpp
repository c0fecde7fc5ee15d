#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/checkpoint/manifest.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/control.hpp>
#include <pulse/diffusers/folder_writer.hpp>
#include <pulse/diffusers/model_header.hpp>
#include <pulse/diffusers/read_backbone.hpp>
#include <pulse/diffusers/read_networks.hpp>
#include <pulse/io/safetensors_header.hpp>
#include <pulse/nn/controlnet.hpp>
#include <pulse/zoo/controlnet.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>
#include <pulse/zoo/uvit.hpp>

#include <support/single_checkpoint.hpp>
#include <support/skip.hpp>

#include "folders.hpp"

namespace {

using namespace pulse;
using namespace pulse::diffusers;
using namespace pulse::test;
using nlohmann::json;

/// A ControlNet over a UNet that also reads pooled text and sizes.
struct control_xl : controlnet<sdxl_tiny::config> {};

constexpr const char* weights_file = "diffusion_pytorch_model.safetensors";

/// Writes a ControlNet's folder with random weights.
template <class M>
drawn_values write_control(const fs::path& folder, std::uint64_t seed, weights_format format = {}) {
    drawn_values drawn{model_parameters<M>(), seed};
    export_control<M>(folder, drawn.source(), format);
    return drawn;
}

template <class M>
void check_values(const fs::path& folder, const drawn_values& wanted) {
    const weights found = open_control<M>(folder);
    for (std::size_t i = 0; i != wanted.parameters.size(); ++i) {
        CAPTURE(wanted.parameters[i].name.str());
        CHECK(values_in(found, wanted.parameters[i]) == wanted.values[i]);
    }
}

template <class M>
[[nodiscard]] std::string refusal_to_open(const fs::path& folder) {
    return refusal_of([&] { static_cast<void>(open_control<M>(folder)); });
}

/// The same with a tenth of the channels, which diffusers builds quickly.
[[nodiscard]] unet_config narrow(unet_config c) {
    for (int& channels : c.block_out_channels) { channels /= 10; }
    c.transformer_head_dim = 8;
    c.cross_attention_dim = 24;
    return c;
}

/// Writes a ControlNet, its parameters and the UNet under it, as control_folder.py reads them.
template <class M, class Unet>
void write_for_diffusers(const fs::path& folder) {
    const drawn_values drawn = write_control<M>(folder / "mine", 1);
    write_pipeline<Unet>(folder / "pipeline", 2);
    std::ofstream in{folder / "in", std::ios::binary};
    json names;
    for (std::size_t i = 0; i != drawn.parameters.size(); ++i) {
        names.push_back(drawn.parameters[i].name.str());
        in.write(reinterpret_cast<const char*>(drawn.values[i].data()),
                 static_cast<std::streamsize>(4 * drawn.values[i].size()));
    }
    put(folder / "names.json", names.dump());
}

/// Checks that pulse reads what diffusers wrote there.
template <class M>
void check_theirs(const fs::path& folder) {
    drawn_values theirs{model_parameters<M>(), 0};
    std::ifstream out{folder / "out", std::ios::binary};
    for (auto& values : theirs.values) {
        const auto bytes = static_cast<std::streamsize>(4 * values.size());
        out.read(reinterpret_cast<char*>(values.data()), bytes);
        REQUIRE(out.gcount() == bytes);
    }
    check_values<M>(folder / "theirs", theirs);
}

} // namespace

TEST_CASE("a ControlNet's folder is diffusers': its config, and every tensor bit for bit, both ways") {
    std::vector<unet_config> unets{narrow(sd15::config), narrow(sd21::config), narrow(sdxl::config)};
    unets.push_back(unets[0]);
    unets.back().name = "one_resnet";
    unets.back().mid_block_resnets = 1;
    unets.back().mid_block_transformer_layers = 0;
    for (const char* const packages : {PULSE_TEST_PYTHON_PACKAGES, PULSE_TEST_PYTHON_NEWEST}) {
        CAPTURE(packages);
        const scratch folder;
        write_for_diffusers<controlnet_tiny, sd_tiny>(folder.path / "models" / "tiny");
        write_for_diffusers<control_xl, sdxl_tiny>(folder.path / "models" / "xl");
        for (const unet_config& unet : unets) {
            const fs::path configs = folder.path / "configs" / unet.name.str();
            fs::create_directories(configs / "unet");
            fs::create_directories(configs / "control");
            put(configs / "unet" / "config.json", print_config(config_of(unet)));
            put(configs / "control" / "config.json", print_config(control_config_of(unet)));
        }
        if (!run_python(PULSE_TEST_DIFFUSERS_CONTROL_FOLDER, packages, {folder.path})) {
            pulse::test::skip("no torch and diffusers");
            continue;
        }
        check_theirs<controlnet_tiny>(folder.path / "models" / "tiny");
        check_theirs<control_xl>(folder.path / "models" / "xl");
        for (const unet_config& unet : unets) {
            CHECK_NOTHROW(require_fit(control_config_of(unet), folder.path / "configs" / unet.name.str() / "theirs"));
        }
    }
}

TEST_CASE("a checkpoint becomes a ControlNet's folder, by its weights or its averages, in shards too") {
    const scratch folder;
    const drawn_values weights_of{model_parameters<controlnet_tiny>(), 1};
    const drawn_values averages_of{model_parameters<controlnet_tiny>(), 2};
    std::vector<named_tensor> tensors;
    for (std::size_t i = 0; i != weights_of.parameters.size(); ++i) {
        tensors.push_back(
            {.what = weights_of.parameters[i], .weight = weights_of.values[i], .average = averages_of.values[i]});
    }
    save_single(folder.path / "checkpoint", tensors, {.step = 3});
    const auto become = [&](train::tensor_part part, weights_format format) {
        export_control<controlnet_tiny>(folder.path / "checkpoint", folder.path / "to", part, format);
    };
    become(train::tensor_part::weight, {});
    check_values<controlnet_tiny>(folder.path / "to", weights_of);
    CHECK(content_of(folder.path / "to").size() == 2);
    become(train::tensor_part::average, {.shard_bytes = 20000});
    check_values<controlnet_tiny>(folder.path / "to", averages_of);
    CHECK(content_of(folder.path / "to").size() > 4);
    become(train::tensor_part::weight, {});
    check_values<controlnet_tiny>(folder.path / "to", weights_of);
    CHECK(content_of(folder.path / "to").size() == 2);
}

TEST_CASE("a published config of a ControlNet fits, and one of another kind is refused by its key") {
    const scratch folder;
    // lllyasviel/sd-controlnet-canny's config, by an old version of diffusers
    const json published = json::parse(R"({
      "_class_name": "ControlNetModel", "_diffusers_version": "0.14.0.dev0", "act_fn": "silu", "attention_head_dim": 8,
      "block_out_channels": [320, 640, 1280, 1280], "class_embed_type": null,
      "conditioning_embedding_out_channels": [16, 32, 96, 256], "controlnet_conditioning_channel_order": "rgb",
      "cross_attention_dim": 768, "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D",
      "CrossAttnDownBlock2D", "DownBlock2D"], "downsample_padding": 1, "flip_sin_to_cos": true, "freq_shift": 0,
      "in_channels": 4, "layers_per_block": 2, "mid_block_scale_factor": 1, "norm_eps": 1e-05, "norm_num_groups": 32,
      "num_class_embeds": null, "only_cross_attention": false, "projection_class_embeddings_input_dim": null,
      "resnet_time_scale_shift": "default", "upcast_attention": false, "use_linear_projection": false})");
    CHECK_NOTHROW(require_fit(control_config_of(sd15::config), published, "f"));
    CHECK(mentions(refusal_of([&] { require_fit(control_config_of(sd21::config), published, "f"); }),
                   {"f: attention_head_dim is 8", "controlnet_sd21 has [5,10,20,20]"}));

    write_control<controlnet_tiny>(folder.path, 1);
    const json mine = json::parse(bytes_of(folder.path / "config.json"));
    const json others{{"_class_name", "UNet2DConditionModel"},
                      {"controlnet_conditioning_channel_order", "bgr"},
                      {"global_pool_conditions", true},
                      {"conditioning_embedding_out_channels", {16, 32, 96}},
                      {"conditioning_channels", 4},
                      {"cross_attention_dim", 32},
                      {"mid_block_type", nullptr},
                      {"class_embed_type", "timestep"},
                      {"out_channels", 4},
                      {"warp", 1}};
    for (const auto& [key, value] : others.items()) {
        json changed = mine;
        changed[key] = value;
        put(folder.path / "config.json", changed.dump());
        CHECK(mentions(refusal_to_open<controlnet_tiny>(folder.path), {"config.json'", key + " is "}));
    }
    json changed = mine;
    changed["num_class_embeds"] = nullptr;
    put(folder.path / "config.json", changed.dump());
    CHECK(refusal_to_open<controlnet_tiny>(folder.path) == "no refusal");
    fs::remove(folder.path / weights_file);
    CHECK(mentions(refusal_to_open<controlnet_tiny>(folder.path), {folder.path.string(), "has no weights"}));
    CHECK(mentions(refusal_to_open<controlnet_tiny>(folder.path / "none"), {"none/config.json"}));
}

TEST_CASE("tensors of another ControlNet are refused by their names") {
    const scratch folder;
    write_control<controlnet_tiny>(folder.path / "mine", 1);
    std::vector<io::tensor_shape> shapes = shapes_of(model_parameters<controlnet_tiny>());
    shapes.erase(shapes.begin());
    folder_writer<> out{folder.path / "mine", {}, "ControlNetModel"};
    out.write("config.json", print_config(control_config_of(controlnet_tiny::config)));
    const drawn_values drawn{model_parameters<controlnet_tiny>(), 1};
    out.write_weights("diffusion_pytorch_model", shapes,
                      [&](std::size_t i, const auto& take) { take(drawn.values[i + 1]); });
    out.commit();
    CHECK(mentions(refusal_to_open<controlnet_tiny>(folder.path / "mine"),
                   {"mine'", "1 tensor is missing", drawn.parameters[0].name.str()}));
}

TEST_CASE("a UNet that ControlNetModel cannot be over is named") {
    const auto refusal = [](const unet_config& c) {
        return refusal_of([&] { static_cast<void>(control_config_of(c)); });
    };
    unet_config c = sd15::config;
    c.layers_per_block = {2, 2, 1, 2};
    CHECK(mentions(refusal(c), {"controlnet_sd15 does not fit diffusers' ControlNetModel", "ResNet blocks"}));
    c = sd15::config;
    c.mid_block_resnets = 0;
    c.mid_block_transformer_layers = 0;
    CHECK(mentions(refusal(c), {"controlnet_sd15", "middle"}));
    c = sd15::config;
    c.encoder_hid_dim = 8;
    CHECK(mentions(refusal(c), {"controlnet_sd15", "encoder_hid_dim"}));
    CHECK(mentions(refusal(ddpm_tiny::config), {"controlnet_ddpm_tiny", "must read text"}));
}

TEST_CASE("only a ControlNet's folder is replaced by one, and no other by its kind") {
    const scratch folder;
    const fs::path target = folder.path / "mine";
    const auto refusal = [&](const char* to) {
        const std::string why = refusal_of([&] { require_control_exportable<controlnet_tiny>(folder.path / to); });
        const bool there = fs::is_directory(folder.path / to);
        const auto before = there ? content_of(folder.path / to) : std::map<std::string, std::string>{};
        CHECK(refusal_of([&] {
                  if (why != "no refusal") { write_control<controlnet_tiny>(folder.path / to, 9); }
              }) == why);
        if (there) { CHECK(content_of(folder.path / to) == before); }
        return why;
    };
    CHECK(refusal("mine") == "no refusal");
    write_control<controlnet_tiny>(target, 1, {.shard_bytes = 20000});
    CHECK(refusal("mine") == "no refusal");
    check_values<controlnet_tiny>(target, write_control<controlnet_tiny>(target, 2));
    CHECK(content_of(target).size() == 2);

    for (const char* const other : {"notes.txt", "model_index.json", "diffusion_pytorch_model.bin"}) {
        put(target / other, "of the user");
        CHECK(mentions(refusal("mine"), {other, "is not part of a ControlNetModel's folder"}));
        fs::remove(target / other);
    }
    fs::create_directory(target / "diffusion_pytorch_model_of_mine.safetensors");
    CHECK(mentions(refusal("mine"), {"of_mine.safetensors' is not part of"}));
    fs::remove(target / "diffusion_pytorch_model_of_mine.safetensors");
    CHECK(refusal("mine") == "no refusal");

    // A UNet's folder looks the same, except for its class.
    write_pipeline<sd_tiny>(folder.path / "sd", 1);
    CHECK(mentions(refusal("sd"), {"is not part of a ControlNetModel's folder"}));
    CHECK(mentions(refusal("sd/unet"), {"unet/config.json': _class_name is 'UNet2DConditionModel'", "is replaced"}));
    fs::remove(target / "config.json");
    CHECK(mentions(refusal("mine"), {"mine/config.json"}));
    write_control<controlnet_tiny>(folder.path / "other", 1);
    CHECK(mentions(refusal_of([&] { write_pipeline<sd_tiny>(folder.path / "other", 2); }), {"other", "model_index"}));
    fs::create_directory(folder.path / "empty");
    CHECK(refusal("empty") == "no refusal");
    put(folder.path / "file", "x");
    CHECK(mentions(refusal("file"), {"file' already exists and is not a folder"}));
    CHECK(mentions(refusal("one.safetensors"), {"one.safetensors' is the name of a file"}));
    CHECK(folder.entries() == 5);
}

TEST_CASE("the header of a ControlNet has its UNet's config and networks, and the name that is asked for") {
    const auto header_of = [](const label& name) {
        unet_config unet = sdxl_tiny::config;
        unet.name = name;
        return print_control_header(unet, read_networks(PULSE_TEST_DIFFUSERS_MODELS "/ssd_tiny", unet));
    };
    CHECK(mentions(header_of("controlnet_ssd"),
                   {"#include <pulse/nn/controlnet.hpp>\n", "#include <pulse/zoo/frozen_networks.hpp>\n",
                    "struct controlnet_ssd : ::pulse::controlnet<::pulse::unet_config{\n    .name = \"ssd\",",
                    "struct pulse::frozen::networks_of<pulse_models::controlnet_ssd>",
                    "second_text<pulse_models::controlnet_ssd_text_encoder_2>"}));
    CHECK(mentions(header_of("lines"), {"struct lines : ::pulse::controlnet<", ".name = \"lines\""}));
    CHECK(mentions(refusal_of([&] { static_cast<void>(print_control_header(uvit_tiny::config, {})); }),
                   {"a ControlNet needs a UNet"}));
    // Its levels have one, two and one ResNet blocks.
    CHECK(mentions(refusal_of([&] {
                       static_cast<void>(print_control_header(
                           read_backbone(PULSE_TEST_DIFFUSERS_MODELS "/ssd_tiny", "controlnet_ssd"), {}));
                   }),
                   {"the model controlnet_ssd does not fit"}));
    CHECK(mentions(refusal_of([&] { static_cast<void>(print_control_header(ddpm_tiny::config, {})); }),
                   {"controlnet_ddpm_tiny does not fit"}));
}
