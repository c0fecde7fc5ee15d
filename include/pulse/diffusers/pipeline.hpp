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

/// What a model_index.json lists. Components that a pipeline is without (null in the file) are not in the list.
struct pipeline {
    std::string class_name{}; ///< "StableDiffusionPipeline"
    std::vector<pipeline_component> components{};
    /// SDXL's force_zeros_for_empty_prompt: where no negative text is given, zeros stand for what one would give.
    bool zeros_without_negative{};

    /// The component of that name, or nullptr.
    [[nodiscard]] const pipeline_component* find(std::string_view name) const noexcept {
        const auto found =
            std::find_if(components.begin(), components.end(), [&](const auto& c) { return c.name == name; });
        return found == components.end() ? nullptr : &*found;
    }
    [[nodiscard]] bool operator==(const pipeline&) const = default;
};

/// The pipeline of a text. Throws input_error naming `source` and the key.
[[nodiscard]] PULSE_INLINE pipeline parse_pipeline(std::string_view text, std::string_view source);

/// The text of a model_index.json.
[[nodiscard]] PULSE_INLINE std::string print_pipeline(const pipeline& index);

/// Throws input_error where the file is a pointer of Git LFS, which stands for content that is not there, or a pipe or
/// device.
PULSE_INLINE void require_content(const std::filesystem::path& file);

/// The same for the small files that are read of a component's folder: configs and vocabularies.
PULSE_INLINE void require_contents(const std::filesystem::path& component);

/// Reads `folder`/model_index.json, without a safety checker and such that have no folder. Throws input_error naming
/// the file and the key, or the component that has no folder, or saying what to do about a path that is no diffusers
/// folder: a name on a hub, a file, a component's folder or one with pointers of Git LFS.
[[nodiscard]] PULSE_INLINE pipeline read_pipeline(const std::filesystem::path& folder);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/pipeline.ipp> // IWYU pragma: keep
#endif
