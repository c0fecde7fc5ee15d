#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/diffusers/text_encoder.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/encode/tokenizer.hpp>
#include <pulse/encode/tokenizer_folder.hpp>
#include <pulse/zoo/frozen_networks.hpp>

namespace pulse::frozen {

/// Reads a folder's tokenizer for texts of `tokens` ids, all below `vocabulary`, the text encoder's. Throws input_error
/// naming the file, or the folder where ids exceed the vocabulary.
[[nodiscard]] inline std::unique_ptr<const encode::tokenizer> read_fitting_tokenizer(
    const std::filesystem::path& folder, int tokens, int vocabulary) {
    auto found = encode::read_tokenizer(folder, tokens);
    if (const std::int32_t needed = found->vocabulary_size(); needed > vocabulary) {
        throw input_error{"'" + folder.string() + "' has token ids up to " + std::to_string(needed - 1) +
                          ", but the text encoder's vocabulary has only " + std::to_string(vocabulary)};
    }
    return found;
}

/// The files of a pipeline's text encoder. Members throw input_error naming the file.
template <class Component>
struct text_files {
    using network = typename Component::network;

    [[nodiscard]] static std::unique_ptr<const encode::tokenizer> tokenizer(const std::filesystem::path& folder) {
        return read_fitting_tokenizer(folder / Component::tokenizer.view(), Component::chunks.length(),
                                      network::vocabulary);
    }
    [[nodiscard]] static diffusers::weights weights(const diffusers::model_files& from) {
        return diffusers::open_text_encoder<network>(from, Component::component.view());
    }
};

/// Throws input_error unless a pipeline has everything that the networks need. Returns one line for each network with
/// weights that are not read, naming them.
template <class Networks>
[[nodiscard]] std::vector<std::string> require_networks(const diffusers::model_files& from) {
    // Report a path that is no folder as such, instead of the first file missing from it.
    if (std::error_code fault; !from.folder.empty() && !std::filesystem::is_directory(from.folder, fault)) {
        static_cast<void>(diffusers::read_pipeline(from.folder));
    }
    std::vector<std::string> unread;
    const auto look_at = [&](const diffusers::weights& of) {
        if (!of.unread().empty()) { unread.push_back(of.unread()); }
    };
    Networks::each_text([&]<class Component>(const Component*) {
        static_cast<void>(text_files<Component>::tokenizer(from.folder));
        look_at(text_files<Component>::weights(from));
    });
    if constexpr (has_autoencoder<Networks>) { look_at(diffusers::open_autoencoder<Networks::picture_config>(from)); }
    return unread;
}

} // namespace pulse::frozen
