#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/folder_writer.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/diffusers/scheduler.hpp>
#include <pulse/diffusers/text_encoder.hpp>
#include <pulse/frozen/folder.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/initialise.hpp>
#include <pulse/nn/unet_config.hpp>
#include <pulse/train/scheduler_settings.hpp>
#include <pulse/zoo/frozen_networks.hpp>

#include "arguments.hpp"
#include "pipeline_folder.hpp"

namespace pulse_train {

/// The diffusers class that reads a folder with such a backbone and this many text encoders.
[[nodiscard]] inline std::string pipeline_class(const pulse::unet_config&, std::size_t texts) {
    return texts == 0 ? "DDIMPipeline" : texts == 1 ? "StableDiffusionPipeline" : "StableDiffusionXLPipeline";
}
[[nodiscard]] inline std::string pipeline_class(const pulse::hunyuan_dit_config&, std::size_t) {
    return "HunyuanDiTPipeline";
}
/// diffusers can read only the other components.
template <class Config>
[[nodiscard]] std::string pipeline_class(const Config&, std::size_t) {
    return "DiffusionPipeline";
}

[[nodiscard]] inline std::string tokenizer_class(const pulse::encode::clip_text_config&) { return "CLIPTokenizer"; }
[[nodiscard]] inline std::string tokenizer_class(const pulse::encode::bert_text_config&) { return "BertTokenizer"; }
[[nodiscard]] inline std::string tokenizer_class(const pulse::encode::t5_text_config&) { return "T5Tokenizer"; }

/// A diffusers folder of random weights around a backbone, usable as --from.
template <class Model>
class new_folder {
    using frozen = pulse::frozen::networks_of<Model>;

public:
    /// Prepares all of --export except its final name; the arguments must outlive it. Throws input_error, before
    /// anything is written, naming the option and the file.
    explicit new_folder(const arguments& a) :
        args_{a}, out_{within(a.export_option, [&] { return pulse::diffusers::folder_writer<>{a.export_to}; })} {
        const std::vector<tokenizer_place> tokenizers = tokenizers_of(a);
        within(a.export_option, [&] {
            add_networks();
            for (const tokenizer_place& one : tokenizers) { add_tokenizer(one); }
        });
    }
    /// Commits the folder. Throws input_error naming the option.
    void finish() {
        within(args_.export_option, [&] { write_index(); });
    }

private:
    struct tokenizer_place {
        pulse::diffusers::pipeline_component component{};
        std::filesystem::path files{};
    };

    [[nodiscard]] static constexpr std::size_t texts() { return std::tuple_size_v<typename frozen::texts>; }

    [[nodiscard]] static std::vector<tokenizer_place> tokenizers_of(const arguments& a) {
        const std::string option = "--tokenizer: ";
        if (a.tokenizer.empty() != (texts() == 0)) {
            throw pulse::input_error{option + (texts() == 0
                                                   ? "not for " + a.model + ", which reads no text"
                                                   : "required: " + a.model + " has " + std::to_string(texts()) +
                                                         (texts() == 1 ? " text encoder" : " text encoders"))};
        }
        std::vector<tokenizer_place> found;
        frozen::each_text([&]<class Component>(const Component*) {
            using network = typename Component::network;
            const std::string name = Component::tokenizer.str();
            std::filesystem::path files = std::filesystem::path{a.tokenizer} / name;
            if (!std::filesystem::is_directory(files)) {
                if (texts() > 1) {
                    throw pulse::input_error{option + "'" + a.tokenizer + "' has no folder " + name + ", which " +
                                             a.model + " needs"};
                }
                files = a.tokenizer;
            }
            try {
                pulse::diffusers::require_contents(files);
                static_cast<void>(
                    pulse::frozen::read_fitting_tokenizer(files, Component::chunks.length(), network::vocabulary));
            } catch (const pulse::input_error& e) { throw pulse::input_error{option + e.what()}; }
            found.push_back({{name, "transformers", tokenizer_class(network::config)}, files});
        });
        return found;
    }

    void add_networks() {
        const arguments& a = args_;
        index_.class_name = frozen::known && !pulse::frozen::has_autoencoder<frozen>
                                ? "DiffusionPipeline"
                                : pipeline_class(Model::config, texts());
        index_.zeros_without_negative = texts() > 1 && index_.class_name == "StableDiffusionXLPipeline";
        const std::string backbone = pulse::diffusers::backbone_folder(Model::config);
        add_network(backbone, pulse::diffusers::config_of(Model::config), a.seed,
                    pulse::diffusers::model_parameters<Model>());
        if constexpr (pulse::frozen::has_autoencoder<frozen>) {
            add_network("vae", pulse::diffusers::config_of(frozen::picture_config), seed_of("vae"),
                        pulse::diffusers::autoencoder_parameters<frozen::picture_config>());
        }
        frozen::each_text([&]<class Component>(const Component*) {
            static constexpr auto all = Component::network::template parameters<>();
            const std::string name = Component::component.str();
            add_network(name, pulse::diffusers::config_of(Component::network::config), seed_of(name),
                        {all.begin(), all.end()});
        });
    }

    /// The seed of a frozen network: networks may have tensors of the same names.
    [[nodiscard]] std::uint64_t seed_of(std::string_view component) const {
        return pulse::nn::sequence_of(args_.seed, component);
    }
    /// Adds a network with a diffusers class, or a transformers class if the config has none.
    void add_network(const std::string& name, const pulse::diffusers::component_config& config, std::uint64_t seed,
                     const std::vector<pulse::parameter>& parameters) {
        const bool text = config.class_name.empty();
        index_.components.push_back({name, text ? "transformers" : "diffusers", pulse::diffusers::class_of(config)});
        const std::filesystem::path folder{name};
        out_.write(folder / "config.json", pulse::diffusers::print_config(config));
        out_.write_weights(folder / (text ? "model" : "diffusion_pytorch_model"),
                           pulse::diffusers::shapes_of(parameters), first_values(nullptr, seed, parameters),
                           export_format(args_));
    }
    /// Copies only known files: a whole model may be beside them.
    void add_tokenizer(const tokenizer_place& one) {
        index_.components.push_back(one.component);
        for (const char* const file : {"vocab.json", "merges.txt", "vocab.txt", "spiece.model", "tokenizer.json",
                                       "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
            if (std::filesystem::exists(one.files / file)) {
                out_.copy(one.files / file, std::filesystem::path{one.component.name} / file);
            }
        }
    }
    void write_index() {
        pulse::train::scheduler_settings noise = args_.scheduler;
        index_.components.push_back({"scheduler", "diffusers", pulse::diffusers::class_of(noise)});
        // Latents have no fixed range to clip to; diffusers warns about other values of these settings.
        if constexpr (pulse::frozen::has_autoencoder<frozen>) {
            noise.clip_sample = false;
            noise.steps_offset = 1;
        }
        out_.write("scheduler/scheduler_config.json", pulse::diffusers::print_scheduler(noise));
        out_.write("model_index.json", pulse::diffusers::print_pipeline(index_));
        out_.commit();
    }

    const arguments& args_;
    pulse::diffusers::folder_writer<> out_;
    pulse::diffusers::pipeline index_{};
};

} // namespace pulse_train
