#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

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
inline constexpr const char* index_file = "model_index.json";

/// Throws input_error saying what to do, unless `folder` is a folder with an index.
inline void require_diffusers_folder(const std::filesystem::path& folder) {
    std::error_code unused;
    const std::string name = "'" + folder.string() + "'";
    if (std::filesystem::is_directory(folder, unused)) {
        if (std::filesystem::exists(folder / index_file, unused)) { return; }
        std::filesystem::path here = std::filesystem::absolute(folder, unused).lexically_normal();
        if (!here.has_filename()) { here = here.parent_path(); }
        const std::filesystem::path parent = here.parent_path();
        if (std::filesystem::exists(parent / index_file, unused)) {
            throw input_error(name + " is a component of '" + parent.string() + "': give that folder instead");
        }
        for (std::filesystem::directory_iterator at{folder / "snapshots", unused}, end; !unused && at != end;
             at.increment(unused)) {
            if (std::filesystem::exists(at->path() / index_file, unused)) {
                throw input_error(name + " is a hub's cache of '" + at->path().string() +
                                  "': give that folder instead");
            }
        }
        throw input_error("'" + (folder / index_file).string() +
                          "' is missing; save_pretrained() of a pipeline writes it");
    }
    if (std::filesystem::exists(folder, unused)) {
        throw input_error(name + " is a file, not a diffusers folder" +
                          (folder.extension() == ".safetensors" || folder.extension() == ".ckpt"
                               ? "; StableDiffusionPipeline.from_single_file(FILE).save_pretrained(FOLDER), or that of "
                                 "another pipeline, makes one from a whole model"
                               : ""));
    }
    throw input_error(name + " is not a folder; nothing is downloaded: 'hf download NAME --local-dir FOLDER' "
                             "or DiffusionPipeline.from_pretrained(NAME).save_pretrained(FOLDER) makes one from a name "
                             "on a hub");
}

} // namespace detail

PULSE_INLINE pipeline parse_pipeline(std::string_view text, std::string_view source) {
    const nlohmann::json json = io::parse_json(text, source);
    const io::json_field root{json, {source, "the index", "model_index.json"}};
    pipeline index{.class_name = root["_class_name"].text()};
    index.zeros_without_negative = root.has(detail::zeros_key) ? root[detail::zeros_key].boolean()
                                                               : index.class_name.starts_with("StableDiffusionXL");
    for (const auto& entry : json.items()) {
        // Other keys are settings of the pipeline: numbers, words, switches.
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
    // Without this key, the class demands the checker that the pipeline lacks.
    if (index.class_name == "StableDiffusionPipeline") { out.emplace("requires_safety_checker", false); }
    return out.dump(2) + "\n";
}

PULSE_INLINE void require_content(const std::filesystem::path& file) {
    constexpr std::string_view begin = "version https://git-lfs.github.com/spec/v1";
    std::string text(begin.size(), '\0');
    std::error_code unused;
    if (std::filesystem::is_other(file, unused)) { // a pipe would wait for a writer
        throw input_error("'" + file.string() + "': it is not a file");
    }
    if (!std::ifstream{file, std::ios::binary}.read(text.data(), static_cast<std::streamsize>(text.size())) ||
        text != begin) {
        return;
    }
    throw input_error("'" + file.string() +
                      "' is a Git LFS pointer, not the file itself; run 'git lfs pull' in "
                      "the repository");
}

PULSE_INLINE void require_contents(const std::filesystem::path& component) {
    std::error_code fault;
    for (std::filesystem::directory_iterator at{component, fault}, end; !fault && at != end; at.increment(fault)) {
        const std::string ending = at->path().extension().string();
        if (ending == ".json" || ending == ".txt" || ending == ".model") { require_content(at->path()); }
    }
}

PULSE_INLINE pipeline read_pipeline(const std::filesystem::path& folder) {
    detail::require_diffusers_folder(folder);
    const std::filesystem::path file = folder / detail::index_file;
    const std::string source = "'" + file.string() + "'";
    require_content(file);
    pipeline index = parse_pipeline(io::read_file(file), source);
    // Components that only drawing needs are often left out of a download.
    std::erase_if(index.components, [&](const pipeline_component& one) {
        constexpr std::array draws{"feature_extractor", "image_encoder", "safety_checker"};
        return std::ranges::find(draws, one.name) != draws.end() && !std::filesystem::exists(folder / one.name);
    });
    for (const pipeline_component& one : index.components) {
        std::error_code unused;
        if (!std::filesystem::is_directory(folder / one.name, unused)) {
            throw input_error(source + ": " + io::printable(one.name) + " is a component of the pipeline, but '" +
                              folder.string() + "' has no folder of this name");
        }
        require_contents(folder / one.name);
    }
    return index;
}

} // namespace pulse::diffusers
