#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/model_header.hpp>
#include <pulse/diffusers/read_backbone.hpp>
#include <pulse/diffusers/read_networks.hpp>
#include <pulse/nn/value_graph.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/hunyuan_dit.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>
#include <pulse/zoo/uvit.hpp>

#include "folders.hpp"

namespace {

using namespace pulse;
using namespace pulse::diffusers;
using namespace pulse::test;
using nlohmann::json;

/// SD 2.1 with text states of more features than its blocks read.
[[nodiscard]] unet_config projected() {
    unet_config c = sd21::config;
    c.encoder_hid_dim = 4096;
    return c;
}

} // namespace

TEST_CASE("a config that is written is read as the same structure: it describes it, and its header says it again") {
    const scratch folder;
    const auto check = [&](const auto& config) {
        const label& name = config.name;
        CAPTURE(name.str());
        put(folder.path / "config.json", print_config(config_of(config)));
        const backbone_config read = read_backbone(folder.path, name);
        CHECK(std::visit([](const auto& c) { return print_config(config_of(c)); }, read) ==
              print_config(config_of(config)));
        const value_graph wanted = value_graph_of(config);
        const value_graph found = std::visit([](const auto& c) { return value_graph_of(c); }, read);
        CHECK(std::ranges::equal(found.view().layers, wanted.view().layers));
        CHECK(std::ranges::equal(found.view().skips, wanted.view().skips));
        CHECK(found.parameters() == wanted.parameters());
        CHECK(mentions(print_header(read, {}),
                       {("struct " + name.str() + " : ::pulse::").c_str(), "namespace pulse_models"}));
    };
    check(ddpm_cifar10::config);
    check(ddpm_fmnist::config);
    check(sd15::config);
    check(sd21::config);
    check(sdxl::config);
    check(uvit_s2::config);
    check(uvit_l2::config);
    check(hunyuan_dit_v11::config);
    check(hunyuan_dit_v12::config);
    check(projected());
    CHECK(mentions(print_header(projected(), {}), {".encoder_hid_dim = 4096"}));
    CHECK(mentions(print_header(hunyuan_dit_v11::config, {}),
                   {"nn/hunyuan_dit.hpp", ".hidden_size = 1408", ".mlp_hidden = 6144", ".rotary_span = 32.0",
                    ".use_style_cond_and_image_meta_size = true"}));
    CHECK(mentions(print_header(uvit_l2::config, {}),
                   {"nn/uvit.hpp", ".img_size = 32", ".num_classes = 1001", ".conv = true"}));
    CHECK(
        mentions(print_header(ddpm_cifar10::config, {}),
                 {"nn/unet.hpp", ".norm_eps = 1e-06", ".attention = {false, true, false, false}", ".freq_shift = 1"}));
}

TEST_CASE("a folder whose backbone cannot be read is refused with the file and the key") {
    const scratch folder;
    const auto refusal_of_config = [&](const unet_config& config, const char* key, const json& value) {
        json file = json::parse(print_config(config_of(config)));
        file[key] = value;
        put(folder.path / "unet" / "config.json", file.dump());
        return refusal_of([&] { static_cast<void>(read_backbone(folder.path, "mine")); });
    };
    const auto refusal = [&](const char* key, const json& value) {
        return refusal_of_config(sd21::config, key, value);
    };
    std::filesystem::create_directories(folder.path / "unet");
    CHECK(refusal("sample_size", nullptr) == "no refusal");
    CHECK(refusal("sample_size", 100) == "no refusal");
    CHECK(mentions(refusal("dropout", 0.1), {"unet/config.json': dropout is 0.1; pulse has 0.0"}));
    CHECK(mentions(refusal("warp", 3), {"warp is 3; pulse does not know this key"}));
    CHECK(mentions(refusal("block_out_channels", json::array()), {"block_out_channels must be a list of 1 to 8"}));
    CHECK(mentions(refusal("block_out_channels", {320, 640, 1280}), {"down_block_types is", "pulse has"}));
    CHECK(mentions(refusal("block_out_channels", {320, 640, 1280, -8}), {"block_out_channels[3] must not be"}));
    CHECK(mentions(refusal("block_out_channels", {320, 640, 1280, 1 << 30}),
                   {"block_out_channels[3] must be at most 1048576"}));
    CHECK(mentions(refusal("norm_num_groups", 7), {"norm_num_groups does not divide"}));
    CHECK(mentions(refusal("attention_head_dim", 7), {"attention_head_dim does not fit"}));
    CHECK(mentions(refusal("layers_per_block", {2, 2}), {"layers_per_block"}));
    CHECK(mentions(refusal("transformer_layers_per_block", {{1, 1}, 1, 1, 1}),
                   {"transformer_layers_per_block does not fit layers_per_block"}));
    CHECK(mentions(refusal("_class_name", "Kandinsky3UNet"),
                   {"_class_name is 'Kandinsky3UNet'; pulse supports UNet2DModel"}));
    // pulse has only the linear projection of text states.
    const auto kind = [&](const unet_config& config, const json& value) {
        return refusal_of_config(config, "encoder_hid_dim_type", value);
    };
    CHECK(kind(projected(), nullptr) == "no refusal");
    CHECK(kind(projected(), "text_proj") == "no refusal");
    for (const std::string one : {"text_image_proj", "image_proj", "ip_image_proj"}) {
        CHECK(mentions(kind(projected(), one), {"encoder_hid_dim_type is", one.c_str(), "pulse has"}));
    }
    CHECK(mentions(kind(sd21::config, "text_proj"), {"encoder_hid_dim_type is", "text_proj", "pulse has null"}));
    CHECK(mentions(refusal("encoder_hid_dim", 0), {"encoder_hid_dim must be 1 to 2147483647"}));
    std::filesystem::create_symlink("loop", folder.path / "loop");
    for (const char* const name : {"none", "loop"}) {
        CHECK(mentions(refusal_of([&] { static_cast<void>(read_backbone(folder.path / name, "mine")); }),
                       {name, "/config.json: cannot be read"}));
    }
}

TEST_CASE("text states are as many as the folder's text encoder has positions") {
    const scratch folder;
    std::filesystem::create_directories(folder.path / "unet");
    std::filesystem::create_directories(folder.path / "text_encoder");
    put(folder.path / "unet" / "config.json", print_config(config_of(sd21::config)));
    const auto tokens = [&] { return std::get<unet_config>(read_backbone(folder.path, "mine")).context_tokens; };
    CHECK(tokens() == 77);
    put(folder.path / "text_encoder" / "config.json", R"({"max_position_embeddings": 9})");
    CHECK(tokens() == 9);
}

TEST_CASE("networks of a folder are read where its backbone reads what they give") {
    const std::filesystem::path folder = PULSE_TEST_DIFFUSERS_MODELS "/ssd_tiny";
    const backbone_config backbone = read_backbone(folder, "mine");
    const auto found = read_networks(folder, backbone);
    REQUIRE(found);
    CHECK(found->pictures.block_out_channels[1] == 16);
    CHECK(found->pictures.sample_size == 16);
    REQUIRE(found->texts.size() == 2);
    const auto& second = std::get<encode::clip_text_config>(found->texts[1]);
    CHECK(second.projection_dim == 12);
    CHECK(second.states_before == 1);
    const std::string header = print_header(backbone, found);
    CHECK(mentions(header, {"struct pulse::frozen::networks_of<pulse_models::mine>",
                            "second_text<pulse_models::mine_text_encoder_2>"}));
    // Nine channels are not the latents plus what the model predicts.
    auto other = std::get<unet_config>(backbone);
    other.in_channels = 9;
    CHECK(!read_networks(folder, other));
    // Four of eight channels are what the model predicts.
    other.in_channels = 8;
    CHECK(read_networks(folder, other));
    other.in_channels = 4;
    other.cross_attention_dim = 16;
    CHECK(!read_networks(folder, other));
    other = std::get<unet_config>(backbone);
    other.projection_class_embeddings_input_dim += 2; // like SDXL's refiner, which reads five numbers instead of six
    CHECK(!read_networks(folder, other));
    CHECK(!read_networks(PULSE_TEST_DIFFUSERS_MODELS "/inpaint_tiny", backbone));
    // A pixel model has no vae.
    const scratch changed;
    std::filesystem::copy(folder, changed.path / "folder", std::filesystem::copy_options::recursive);
    json index = json::parse(bytes_of(changed.path / "folder" / "model_index.json"));
    const auto put_index = [&] { put(changed.path / "folder" / "model_index.json", index.dump()); };
    const auto without = [&](const char* component) {
        const json was = std::exchange(index[component], json{nullptr, nullptr});
        put_index();
        auto pixels = std::get<unet_config>(backbone);
        pixels.in_channels = 3;
        const auto read = read_networks(changed.path / "folder", pixels);
        index[component] = was;
        return read ? print_header(pixels, read) : "";
    };
    CHECK(
        mentions(without("vae"), {"pixel_networks<::pulse::encode::autoencoder_config{", ".block_out_channels = {3}"}));
    CHECK(without("text_encoder").empty());
    // SDXL's refiner declares in its index what its UNet reads.
    index["requires_aesthetics_score"] = true;
    put_index();
    CHECK(mentions(refusal_of([&] { static_cast<void>(read_backbone(changed.path / "folder", "mine")); }),
                   {"model_index.json': requires_aesthetics_score is true"}));
    index["requires_aesthetics_score"] = false;
    put_index();
    put(changed.path / "folder" / "config.json", "{}"); // a hub's file, not the backbone's
    CHECK_NOTHROW(static_cast<void>(read_backbone(changed.path / "folder/", "mine")));
    // A key that changes what a network computes is refused by name.
    const std::filesystem::path vae = changed.path / "folder" / "vae" / "config.json";
    json file = json::parse(bytes_of(vae));
    file["shift_factor"] = 0.1;
    put(vae, file.dump());
    CHECK(mentions(refusal_of([&] { static_cast<void>(read_networks(changed.path / "folder", backbone)); }),
                   {"vae/config.json': shift_factor is 0.1; pulse has null"}));
}
