#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/wait.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <io/scratch.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/zoo/ddpm.hpp>

namespace pulse::test {

namespace fs = std::filesystem;

/// Random values of all parameters.
struct drawn_values {
    std::vector<parameter> parameters;
    std::vector<std::vector<float>> values;

    drawn_values(std::vector<parameter> what, std::uint64_t seed) : parameters{std::move(what)} {
        std::mt19937_64 engine{seed};
        std::normal_distribution<float> normal{};
        for (const parameter& one : parameters) {
            values.emplace_back(static_cast<std::size_t>(one.elements()));
            for (float& value : values.back()) { value = normal(engine); }
        }
    }

    /// Delivers each tensor in two pieces, as a checkpoint may.
    [[nodiscard]] diffusers::tensor_values source() const {
        return [this](std::size_t i, const std::function<void(std::span<const float>)>& put) {
            const std::span<const float> all{values[i]};
            put(all.first(all.size() / 2));
            put(all.subspan(all.size() / 2));
        };
    }
};

[[nodiscard]] inline std::vector<float> values_in(const diffusers::weights& from, const parameter& what) {
    std::vector<float> values(static_cast<std::size_t>(what.elements()));
    from.read(what, 0, values);
    return values;
}

/// Writes a UNet pipeline: its weights, and other components as opaque bytes.
template <class M>
void write_pipeline(const fs::path& folder, const drawn_values& drawn, std::string_view scheduler,
                    diffusers::weights_format format = {}) {
    const diffusers::component_config config = diffusers::config_of(M::config);
    const fs::path unet = diffusers::backbone_folder(M::config);
    diffusers::folder_writer<> out{folder};
    out.write("model_index.json", diffusers::print_pipeline({"DDPMPipeline",
                                                             {{unet.string(), "diffusers", config.class_name},
                                                              {"scheduler", "diffusers", "DDPMScheduler"}}}));
    out.write("scheduler/scheduler_config.json", scheduler);
    out.write("scheduler/more/bytes", std::string_view{"\0\1\2", 3});
    out.write(unet / "config.json", diffusers::print_config(config));
    out.write_weights(unet / "diffusion_pytorch_model", diffusers::shapes_of(drawn.parameters), drawn.source(), format);
    out.commit();
}
/// The same with random weights; the smallest UNet by default.
template <class M = ddpm_tiny>
drawn_values write_pipeline(const fs::path& folder, std::uint64_t seed, diffusers::weights_format format = {}) {
    drawn_values drawn{diffusers::model_parameters<M>(), seed};
    write_pipeline<M>(folder, drawn, "{\"_class_name\": \"DDPMScheduler\"}\n", format);
    return drawn;
}

/// All files of a folder and their contents.
[[nodiscard]] inline std::map<std::string, std::string> content_of(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator{folder}) {
        if (entry.is_regular_file()) { all[entry.path().lexically_relative(folder).string()] = bytes_of(entry.path()); }
    }
    return all;
}

/// The message of the input_error of `act`; one line of UTF-8.
template <class Act>
[[nodiscard]] std::string refusal_of(const Act& act) {
    try {
        act();
    } catch (const input_error& why) {
        const std::string text = why.what();
        for (const char c : text) { CHECK(static_cast<unsigned char>(c) >= 0x20); }
        CHECK_NOTHROW(static_cast<void>(nlohmann::json(text).dump())); // UTF-8
        CHECK(text.size() < 2000);
        return text;
    }
    return "no refusal";
}

/// Runs a script of this room on some folders with the packages of a folder; false if one of them is missing.
[[nodiscard]] inline bool run_python(const char* script, const char* packages,
                                     std::initializer_list<fs::path> folders) {
    if (std::string_view{PULSE_TEST_PYTHON}.empty() || !fs::exists(packages)) { return false; }
    std::string command = "'" PULSE_TEST_PYTHON "' '";
    command += script + std::string{"' '"} + packages + "'";
    for (const fs::path& folder : folders) { command += " '" + folder.string() + "'"; }
    const int status = std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) { return false; }
    REQUIRE(WEXITSTATUS(status) == 0);
    return true;
}

[[nodiscard]] inline bool mentions(const std::string& text, std::initializer_list<std::string_view> parts) {
    for (const std::string_view part : parts) {
        if (text.find(part) == std::string::npos) {
            MESSAGE("'" << text << "' lacks '" << part << "'");
            return false;
        }
    }
    return true;
}

} // namespace pulse::test
