#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/separate.hpp>

namespace pulse::diffusers {

/// A component of a pipeline: its folder, and the library and class that read it.
struct pipeline_component {
    std::string name{};       ///< "unet"
    std::string library{};    ///< "diffusers"
    std::string class_name{}; ///< "UNet2DConditionModel"

    [[nodiscard]] bool operator==(const pipeline_component&) const = default;
};

/// What a model_index.json lists, without components that the pipeline lacks (null in the file).
struct pipeline {
    std::string class_name{}; ///< "StableDiffusionPipeline"
    std::vector<pipeline_component> components{};
    /// SDXL's force_zeros_for_empty_prompt: without a negative text, zeros replace the encoding of one.
    bool zeros_without_negative{};

    /// The component of that name, or nullptr.
    [[nodiscard]] const pipeline_component* find(std::string_view name) const noexcept {
        const auto found =
            std::find_if(components.begin(), components.end(), [&](const auto& c) { return c.name == name; });
        return found == components.end() ? nullptr : &*found;
    }
    [[nodiscard]] bool operator==(const pipeline&) const = default;
};

/// Parses a model_index.json. Throws input_error naming `source` and the key.
[[nodiscard]] PULSE_INLINE pipeline parse_pipeline(std::string_view text, std::string_view source);

/// The text of a model_index.json.
[[nodiscard]] PULSE_INLINE std::string print_pipeline(const pipeline& index);

/// Throws input_error if the file is a pointer of Git LFS, whose content is not there, or a pipe or device.
PULSE_INLINE void require_content(const std::filesystem::path& file);

/// The same for the small files that are read from a component's folder: configs and vocabularies.
PULSE_INLINE void require_contents(const std::filesystem::path& component);

/// Reads `folder`/model_index.json; leaves out a safety checker and other components for drawing that have no folder.
/// Throws input_error naming the file and the key, or a component without a folder, or saying what to do about a path
/// that is not a diffusers folder: a name on a hub, a file, a component's folder, or pointers of Git LFS.
[[nodiscard]] PULSE_INLINE pipeline read_pipeline(const std::filesystem::path& folder);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/pipeline.ipp> // IWYU pragma: keep
#endif
