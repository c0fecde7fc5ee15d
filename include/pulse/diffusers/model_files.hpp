#pragma once

#include <concepts>
#include <filesystem>
#include <utility>

namespace pulse::diffusers {

/// The files of a pipeline: a diffusers folder and, if its weights are elsewhere, the file with those of its unet, vae
/// and text encoders in the layout of the models' authors (single_file.hpp). The folder then provides what such a file
/// lacks: configs, tokenizers and the scheduler; weights in it are not read.
struct model_files {
    std::filesystem::path folder{};
    std::filesystem::path file{}; ///< a .safetensors; empty: weights are in the folder

    model_files() = default;
    template <std::convertible_to<std::filesystem::path> Path>
    model_files(const Path& all) : folder{all} {} // NOLINT: a folder is all that most pipelines are
    model_files(std::filesystem::path others, std::filesystem::path weights) :
        folder{std::move(others)}, file{std::move(weights)} {}
};

} // namespace pulse::diffusers
