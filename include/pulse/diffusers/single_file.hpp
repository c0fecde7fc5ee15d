#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/model_files.hpp>

namespace pulse::diffusers {

/// The components of a pipeline whose weights a checkpoint of one file has.
inline constexpr std::array<std::string_view, 4> single_file_components{"unet", "vae", "text_encoder",
                                                                        "text_encoder_2"};

/// Whether the weights of a component are in the checkpoint of one file.
[[nodiscard]] inline bool weights_are_apart(const model_files& from, std::string_view component) {
    const auto& all = single_file_components;
    return !from.file.empty() && std::find(all.begin(), all.end(), component) != all.end();
}

/// Whether a path in a component's folder is a file of what goes with the weights: configs and vocabularies, and no
/// weights in whatever format.
[[nodiscard]] inline bool goes_with_weights(const std::filesystem::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    const bool is_index = name.find(".index.") != std::string::npos;
    return entry.is_regular_file() && !is_index &&
           (name.ends_with(".json") || name.ends_with(".txt") || name.ends_with(".model"));
}

/// A tensor of a component, as a checkpoint of one file has it.
struct stored_tensor {
    std::string name{};    ///< in the file, or of the component: of the other side
    int part{-1};          ///< of the three equal parts that the rows of the file's tensor are; -1: it is all of it
    bool transposed{};     ///< the file has columns as rows
    bool as_convolution{}; ///< the file has a matrix as a convolution of 1 x 1
};

namespace detail {

/// The two names of what is in a block, in full or up to a '.'.
struct inner_names {
    std::string_view stored{};
    std::string_view own{};
    int part{-1};
};

} // namespace detail

/// How a checkpoint of one file, as Stable Diffusion 1.x, 2.x and XL were published, calls the tensors of a component
/// of a pipeline: `model.diffusion_model.input_blocks.1.0.in_layers.0.weight` is
/// `down_blocks.0.resnets.0.norm1.weight` of `unet`.
///
/// Sources: the state dicts of CompVis/stable-diffusion (ldm), Stability-AI/generative-models (sgm) and
/// mlfoundations/open_clip, and diffusers' conversion (loaders/single_file_utils.py).
class single_file_layout {
public:
    /// Reads the index of a diffusers folder and the config of one of single_file_components. Throws input_error naming
    /// the file, where the pipeline is no Stable Diffusion of a UNet, an AutoencoderKL and CLIP's text encoders.
    PULSE_INLINE single_file_layout(const std::filesystem::path& folder, std::string_view component);

    /// What all names of the component begin with in the file.
    [[nodiscard]] const std::string& root() const noexcept { return root_; }
    /// The tensors of the component that a tensor of the file is, whose name begins with root(); none where diffusers
    /// does not read it.
    [[nodiscard]] PULSE_INLINE std::vector<stored_tensor> tensors_in(std::string_view stored) const;
    /// The tensor of the file that has one of the component, by a name that any version of diffusers or transformers
    /// gives it. Throws input_error for one that such a file has no place for.
    [[nodiscard]] PULSE_INLINE stored_tensor place_of(std::string_view name) const;

private:
    struct block {
        std::string stored;
        std::string own;
        std::span<const detail::inner_names> inside{};
        bool transposed{};
        bool as_convolution{};

        [[nodiscard]] stored_tensor named(std::string name) const {
            return {.name = std::move(name), .transposed = transposed, .as_convolution = as_convolution};
        }
    };
    PULSE_INLINE void add_unet(const std::filesystem::path& folder);
    PULSE_INLINE void add_autoencoder(const std::filesystem::path& folder);
    PULSE_INLINE void add_open_clip(int layers, bool projects);

    std::string root_{};
    std::vector<block> blocks_{};
    bool only_blocks_{}; ///< the file has more than the component
    bool is_text_{};
};

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/single_file.ipp> // IWYU pragma: keep
#endif
