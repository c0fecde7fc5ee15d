#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/scheduler.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/scheduler_settings.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

#include <nn/small_text.hpp>
#include <support/skip.hpp>

#include "folders.hpp"

namespace {

using namespace pulse;
using namespace pulse::diffusers;
using namespace pulse::test;

/// Writes config.json and the names and shapes of a whole model.
void write_names(const fs::path& folder, const component_config& config, const std::vector<parameter>& parameters) {
    fs::create_directories(folder);
    put(folder / "config.json", print_config(config));
    std::ofstream names{folder / "names"};
    for (const parameter& what : parameters) {
        names << what.name.str();
        for (const std::int64_t extent : train::detail::dims_of(what)) { names << ' ' << extent; }
        names << '\n';
    }
}

template <class M>
void write_names(const fs::path& folder) {
    write_names(folder / M::name.str(), config_of(M::config), model_parameters<M>());
}

/// A folder that diffusers read and saved has the values that pulse wrote; exporting it unchanged gives the same file.
template <class M>
void check_round(const fs::path& folder, const drawn_values& written) {
    const weights found = open_backbone<M>(folder);
    int differ = 0;
    for (std::size_t i = 0; i != written.parameters.size(); ++i) {
        differ += values_in(found, written.parameters[i]) == written.values[i] ? 0 : 1;
    }
    CHECK(differ == 0);
    CHECK(written.parameters.size() == found.tensors().size());
    folder_writer<> out{folder.parent_path() / "again"};
    const fs::path file = "unet/diffusion_pytorch_model";
    out.write_weights(file, shapes_of(written.parameters),
                      [&](std::size_t i, const auto& put) { put(values_in(found, written.parameters[i])); });
    out.write("model_index.json", R"({"_class_name": "P", "unet": ["diffusers", "x"]})");
    out.commit();
    const std::string name = file.string() + ".safetensors";
    CHECK(bytes_of(folder.parent_path() / "again" / name) == bytes_of(folder / name));
}

/// Checks that the tensors of a component are exactly those of the list.
void check_values(const fs::path& component, const fs::path& list) {
    weights found{component};
    const std::string bytes = bytes_of(list);
    std::size_t at = 0;
    const auto number = [&] {
        std::uint32_t value = 0;
        std::memcpy(&value, bytes.data() + at, 4);
        at += 4;
        return value;
    };
    weights_request request{.ignored = {"text_model.embeddings.position_ids"}};
    std::vector<std::vector<float>> values;
    while (at != bytes.size()) {
        const std::uint32_t size = number();
        parameter what{.name = label{std::string_view{bytes}.substr(at, size)}};
        at += size;
        what.rank = static_cast<int>(number());
        for (int d = 0; d != what.rank; ++d) { what.dims[static_cast<std::size_t>(d)] = static_cast<int>(number()); }
        values.emplace_back(static_cast<std::size_t>(what.elements()));
        std::memcpy(values.back().data(), bytes.data() + at, values.back().size() * 4);
        at += values.back().size() * 4;
        request.parameters.push_back(what);
    }
    CHECK(request.parameters.size() > 20);
    REQUIRE_NOTHROW(found.require(request));
    for (std::size_t i = 0; i != values.size(); ++i) { CHECK(values_in(found, request.parameters[i]) == values[i]); }
}

constexpr encode::autoencoder_config small_vae() {
    encode::autoencoder_config c{};
    c.name = "small_vae";
    c.sample_size = 8;
    c.block_out_channels = {4, 8};
    c.layers_per_block = 1;
    c.norm_num_groups = 2;
    return c;
}

/// Writes schedulers, each with its noise levels.
void write_schedulers(const fs::path& folder) {
    using namespace pulse::train;
    for (int which = 0; which != 6; ++which) {
        const scheduler_settings settings{.train_steps = 50,
                                          .betas = static_cast<beta_shape>(which % 3),
                                          .zero_terminal_snr = which >= 3,
                                          .prediction = prediction_type::velocity};
        const fs::path mine = folder / std::to_string(which);
        fs::create_directories(mine);
        put(mine / "scheduler_config.json", print_scheduler(settings));
        std::ofstream levels{mine / "levels"};
        levels.precision(17);
        const noise_schedule schedule = schedule_of(settings);
        for (const double level : schedule.alphas_cumprod()) { levels << level << '\n'; }
    }
}

/// A scheduler's noise levels and prediction equal those of diffusers, up to float rounding; at zero terminal SNR some
/// classes keep 2^-24.
void check_scheduler(const fs::path& folder) {
    train::scheduler_settings read;
    REQUIRE_NOTHROW(read = read_scheduler(folder));
    constexpr std::array predictions{"epsilon", "v_prediction", "sample"};
    CHECK(bytes_of(folder / "prediction") == predictions[static_cast<std::size_t>(read.prediction)]);
    std::ifstream levels{folder / "levels"};
    double worst = 0;
    const train::noise_schedule schedule = train::schedule_of(read);
    for (const double mine : schedule.alphas_cumprod()) {
        double theirs = -1;
        levels >> theirs;
        worst = std::max(worst, std::abs(mine - theirs) / (1e-4 * mine + 1e-7));
    }
    CHECK(worst < 1);
    CHECK((levels >> std::ws).eof());
}

[[nodiscard]] bool check_folders(const char* packages) {
    const scratch folder;
    const fs::path ours = folder.path / "pulse";
    const drawn_values ddpm = write_pipeline(ours / "ddpm", 1);
    const drawn_values sd = write_pipeline<small_sd>(ours / "small_sd", 2);
    const drawn_values sdxl_values = write_pipeline<small_sdxl>(ours / "small_sdxl", 3);
    drawn_values half = write_pipeline<small_sd>(ours / "half", 4, {.type = io::f16});
    for (auto& values : half.values) {
        for (float& value : values) { value = io::float_of_half(io::half_of_float(value)); }
    }
    const fs::path vae_names = folder.path / "names" / "vae";
    write_names(vae_names, config_of(encode::kl_f8(512)), autoencoder_parameters<encode::kl_f8(512)>());
    write_names<sd15>(folder.path / "names");
    write_names<sd21>(folder.path / "names");
    write_names<sdxl>(folder.path / "names");
    write_names<ddpm_cifar10>(folder.path / "names");

    write_schedulers(folder.path / "schedulers");

    if (!run_python(PULSE_TEST_DIFFUSERS_FOLDERS, packages, {folder.path})) { return false; }

    const fs::path theirs = folder.path / "diffusers";
    CHECK(read_pipeline(theirs / "ddpm").class_name == "DDPMPipeline");
    check_round<ddpm_tiny>(theirs / "ddpm", ddpm);
    check_round<small_sd>(theirs / "small_sd", sd);
    check_round<small_sdxl>(theirs / "small_sdxl", sdxl_values);
    CHECK_NOTHROW(static_cast<void>(open_backbone<small_sdxl>(theirs / "small_sdxl")));
    const weights halves = open_backbone<small_sd>(theirs / "half");
    for (std::size_t i = 0; i != half.parameters.size(); ++i) {
        CHECK(halves.tensors().at(half.parameters[i].name.str()).entry->type == io::f16);
        CHECK(values_in(halves, half.parameters[i]) == half.values[i]);
    }
    for (const char* const name : {"vae", "text_encoder", "text_encoder_2"}) {
        CAPTURE(name);
        check_values(theirs / name, folder.path / (std::string{name} + ".values"));
    }
    CHECK(open_autoencoder<small_vae()>(theirs).tensors().size() == autoencoder_parameters<small_vae()>().size());
    CHECK(fs::exists(theirs / "text_encoder_2" / "model.safetensors.index.json"));
    int schedulers = 0;
    for (const auto& entry : fs::directory_iterator{folder.path / "written"}) {
        CAPTURE(entry.path().filename().string());
        check_scheduler(entry.path());
        ++schedulers;
    }
    CHECK(schedulers > 100);
    // A folder of one model is refused for another, whoever wrote it.
    CHECK(mentions(refusal_of([&] { static_cast<void>(open_backbone<small_sdxl>(theirs / "small_sd")); }),
                   {"small_sd/unet/config.json'", "the compiled model small_sdxl has"}));
    return true;
}

} // namespace

TEST_CASE("diffusers reads what pulse writes, and pulse what diffusers writes") {
    if (!check_folders(PULSE_TEST_PYTHON_PACKAGES)) { pulse::test::skip("no torch, diffusers and transformers"); }
}

TEST_CASE("the newest diffusers reads what pulse writes, and pulse what it writes") {
    if (!check_folders(PULSE_TEST_PYTHON_NEWEST)) { pulse::test::skip("no newest torch, diffusers and transformers"); }
}
