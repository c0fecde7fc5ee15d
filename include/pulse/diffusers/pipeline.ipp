#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::diffusers {

namespace detail {

inline constexpr const char* zeros_key = "force_zeros_for_empty_prompt";

} // namespace detail

PULSE_INLINE pipeline parse_pipeline(std::string_view text, std::string_view source) {
    const nlohmann::json json = io::parse_json(text, source);
    const io::json_field root{json, {source, "the index", "model_index.json"}};
    pipeline index{.class_name = root["_class_name"].text()};
    index.zeros_without_negative = root.has(detail::zeros_key) ? root[detail::zeros_key].boolean()
                                                               : index.class_name.starts_with("StableDiffusionXL");
    for (const auto& entry : json.items()) {
        // Other keys are settings of the pipeline's own: numbers, words, switches.
        if (!entry.value().is_array() || entry.key().starts_with('_')) { continue; }
        const std::string place = std::string{source} + ": " + io::printable(entry.key());
        const nlohmann::json& pair = entry.value();
        if (pair.size() == 2 && pair[0].is_null() && pair[1].is_null()) { continue; }
        if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
            throw input_error(place + " must be a library and a class");
        }
        if (entry.key().empty() || entry.key() == "." || entry.key() == ".." ||
            entry.key().find_first_of(std::string_view{"/\0", 2}) != std::string::npos) {
            throw input_error(place + " cannot be the name of a folder");
        }
        index.components.push_back({entry.key(), pair[0].get<std::string>(), pair[1].get<std::string>()});
    }
    return index;
}

PULSE_INLINE std::string print_pipeline(const pipeline& index) {
    nlohmann::ordered_json out;
    out["_class_name"] = index.class_name;
    for (const pipeline_component& one : index.components) { out[one.name] = {one.library, one.class_name}; }
    if (index.zeros_without_negative || index.class_name.starts_with("StableDiffusionXL")) {
        out[detail::zeros_key] = index.zeros_without_negative;
    }
    // The class asks otherwise for a checker that it is without.
    if (index.class_name == "StableDiffusionPipeline") { out["requires_safety_checker"] = false; }
    return out.dump(2) + "\n";
}

PULSE_INLINE pipeline read_pipeline(const std::filesystem::path& folder) {
    const std::filesystem::path file = folder / "model_index.json";
    const std::string source = "'" + file.string() + "'";
    pipeline index = parse_pipeline(io::read_file(file), source);
    for (const pipeline_component& one : index.components) {
        std::error_code unused;
        if (!std::filesystem::is_directory(folder / one.name, unused)) {
            throw input_error(source + ": " + io::printable(one.name) + " is a component of the pipeline, and '" +
                              folder.string() + "' has no folder of this name");
        }
    }
    return index;
}

} // namespace pulse::diffusers
