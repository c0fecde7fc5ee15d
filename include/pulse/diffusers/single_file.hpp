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

/// The components of a pipeline whose weights a checkpoint of one file may have.
inline constexpr std::array<std::string_view, 4> single_file_components{"unet", "vae", "text_encoder",
                                                                        "text_encoder_2"};

/// Whether the weights of a component are in the checkpoint of one file.
[[nodiscard]] inline bool weights_are_apart(const model_files& from, std::string_view component) {
    const auto& all = single_file_components;
    return !from.file.empty() && std::find(all.begin(), all.end(), component) != all.end();
}

/// Whether a path in a component's folder is a file that accompanies the weights: a config or vocabulary, but no
/// weights of any format.
[[nodiscard]] inline bool goes_with_weights(const std::filesystem::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    const bool is_index = name.find(".index.") != std::string::npos;
    return entry.is_regular_file() && !is_index &&
           (name.ends_with(".json") || name.ends_with(".txt") || name.ends_with(".model"));
}

/// A tensor of a component, as it is stored in a checkpoint of one file.
struct stored_tensor {
    std::string name{};    ///< place_of: in the file; tensors_in: in the component
    int part{-1};          ///< which third of the rows of the file's tensor; -1: all of it
    bool transposed{};     ///< the file has the transpose
    bool as_convolution{}; ///< the file has the matrix as a 1 x 1 convolution
};

namespace detail {

/// The names of a part of a block in the file and in the component, in full or up to a '.'.
struct inner_names {
    std::string_view stored{};
    std::string_view own{};
    int part{-1};
};

} // namespace detail

/// Maps tensors of a pipeline's component to their names in a checkpoint of one file, as Stable Diffusion 1.x, 2.x and
/// XL were published: `model.diffusion_model.input_blocks.1.0.in_layers.0.weight` is
/// `down_blocks.0.resnets.0.norm1.weight` of `unet`.
///
/// Sources: the state dicts of CompVis/stable-diffusion (ldm), Stability-AI/generative-models (sgm) and
/// mlfoundations/open_clip, and diffusers' conversion (loaders/single_file_utils.py).
class single_file_layout {
public:
    /// Reads the index of a diffusers folder and the config of one of single_file_components. Throws input_error naming
    /// the file, if the pipeline is not a Stable Diffusion with a UNet, an AutoencoderKL and CLIP text encoders.
    PULSE_INLINE single_file_layout(const std::filesystem::path& folder, std::string_view component);

    /// Prefix of all names of the component in the file.
    [[nodiscard]] const std::string& root() const noexcept { return root_; }
    /// The tensors of the component in a tensor of the file, whose name must begin with root(); none if diffusers does
    /// not read it.
    [[nodiscard]] PULSE_INLINE std::vector<stored_tensor> tensors_in(std::string_view stored) const;
    /// The tensor of the file that has a tensor of the component, under a name from any version of diffusers or
    /// transformers. Throws input_error for a tensor that such a file has no place for.
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
    bool only_blocks_{}; ///< the file also has tensors that are not the component's
    bool is_text_{};
};

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/single_file.ipp> // IWYU pragma: keep
#endif
