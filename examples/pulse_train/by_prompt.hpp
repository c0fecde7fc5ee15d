#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/conditioning.hpp>
#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/frozen/caption_encoder.hpp>
#include <pulse/frozen/chain.hpp>
#include <pulse/frozen/folder.hpp>
#include <pulse/frozen/picture_extents.hpp>
#include <pulse/frozen/sample_row.hpp>
#include <pulse/model/image.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend_on.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/train/condition_values.hpp>
#include <pulse/train/latent_task.hpp>
#include <pulse/zoo/frozen_networks.hpp>

#include "arguments.hpp"
#include "drawing.hpp"
#include "pipeline_folder.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

/// Draws pictures by --prompt or --class on a side: the networks of --from encode texts and decode latents.
template <class Model, class Side>
class by_prompt {
    using math = typename pulse::train::latent_task<typename Side::math>::frozen_backend;
    using frozen = pulse::frozen::networks_of<Model>;
    static constexpr pulse::frozen::sample_row row{pulse::conditions_read_by<Model>(), frozen::no_class};
    static constexpr bool by_class = row.classes() != 0;
    static_assert(!by_class || frozen::no_class >= 0,
                  "pulse_train: a model that reads classes needs a no_class label, which guidance leads away from");

public:
    /// Throws input_error naming the option, the file and the key or the tensors.
    by_prompt(const Side& side, const arguments& a, const pulse::frozen::picture_extents& sizes) :
        side_{side}, args_{a}, sizes_{sizes} {
        const std::string option = a.classes.empty() ? "--prompt: " : "--class: ";
        if (by_class == a.classes.empty()) {
            throw pulse::input_error{option + "pictures of " + a.model + " are drawn by " +
                                     (by_class ? "--class" : "--prompt")};
        }
        try {
            tell_unread(a, pulse::frozen::require_networks<frozen>(a.source()));
            side.run_workers(1, [&](const pulse::any_transport& alone) { encode(alone); });
        } catch (const pulse::input_error& e) { throw pulse::input_error{option + e.what()}; }
        if constexpr (pulse::reads_hint<Model>) { read_hints(); }
    }

    /// Shape of the pictures.
    [[nodiscard]] sample_shape shape() const noexcept {
        return {frozen::picture_config.out_channels, sizes_.pixels.height, sizes_.pixels.width};
    }
    /// What the backbone reads of the prompts or classes, in turn, and of the negative one; valid while this lives.
    [[nodiscard]] image_conditions conditions() const {
        const auto of = [](const std::vector<float>& rows) {
            return pulse::train::condition_source{
                row.wanted, [&rows](std::uint64_t image, std::size_t which, std::span<float> to) {
                    const std::size_t at = image % (rows.size() / row.elements()) * row.elements();
                    std::ranges::copy(row.of(std::span{rows}.subspan(at, row.elements()), which), to.begin());
                }};
        };
        image_conditions all{.wanted = of(rows_), .other = of(negative_), .guidance = args_.guidance};
        if (hints_.empty()) { return all; }
        all.wanted.hint_elements = hints_.front().size();
        all.wanted.read_hint = [this](std::uint64_t image, std::span<float> to) {
            std::ranges::copy(hints_[image % hints_.size()], to.begin());
        };
        return all;
    }

    /// Decodes latents into pictures, one after another.
    [[nodiscard]] std::vector<float> decode(std::vector<float> latents) const {
        if constexpr (!pulse::frozen::has_autoencoder<frozen>) {
            return latents;
        } else {
            constexpr auto config = frozen::picture_config;
            const std::size_t each =
                sample_shape{config.latent_channels, sizes_.latents.height, sizes_.latents.width}.elements();
            const std::size_t pixels = shape().elements();
            for (float& value : latents) { value /= static_cast<float>(config.scaling_factor); }
            std::vector<float> pictures(latents.size() / each * pixels);
            side_.run_workers(1, [&](const pulse::any_transport& alone) {
                math on = pulse::backend_on<math>(alone, args_.threads);
                pulse::frozen::folder_chain<typename frozen::decoder, math> network{
                    on, pulse::diffusers::open_autoencoder<config>(args_.source()), {}, sizes_.latents};
                for (std::size_t i = 0; i != latents.size() / each; ++i) {
                    network.run(std::span{latents}.subspan(i * each, each),
                                std::span{pictures}.subspan(i * pixels, pixels));
                }
            });
            return pictures;
        }
    }

private:
    void read_hints() {
        if (args_.control_pictures.empty()) {
            throw pulse::input_error{"--control-picture: " + args_.model +
                                     " draws by a conditioning image, but none is given"};
        }
        for (const std::string& file : args_.control_pictures) {
            hints_.push_back(within("--control-picture",
                                    [&] { return pulse::data::read_conditioning(file, pulse::hint_extent<Model>()); }));
        }
    }
    void encode(const pulse::any_transport& alone) {
        math on = pulse::backend_on<math>(alone, args_.threads);
        pulse::frozen::caption_encoder<Model, math> texts{args_.source(), on};
        pulse::frozen::picture_facts facts{}; // of an uncropped picture
        facts.original_height = sizes_.pixels.height;
        facts.original_width = sizes_.pixels.width;
        const auto add = [&](const std::string& text, const std::string& what, std::vector<float>& rows) {
            rows.resize(rows.size() + row.elements());
            const std::span<float> last = std::span{rows}.last(row.elements());
            texts.run(text, what, last);
            pulse::frozen::write_picture_facts(row, facts, sizes_.pixels, last);
        };
        for (const int label : args_.classes) {
            if (label >= row.classes()) {
                throw pulse::input_error{"must be from 0 to " + std::to_string(row.classes() - 1) + ", not " +
                                         std::to_string(label)};
            }
            facts.label = label;
            add({}, {}, rows_);
        }
        for (const std::string& prompt : args_.prompts) {
            add(prompt, "prompt " + std::to_string(rows_.size() / row.elements() + 1), rows_);
        }
        facts.dropped = true;
        add(args_.negative, "the negative prompt", negative_);
        if (args_.negative.empty() && pulse::diffusers::read_pipeline(args_.from).zeros_without_negative) {
            for (const std::size_t which : row.of_caption()) {
                std::ranges::fill(row.of(std::span{negative_}, which), 0.0F);
            }
        }
    }

    const Side& side_;
    const arguments& args_;
    pulse::frozen::picture_extents sizes_;
    std::vector<float> rows_{}; ///< what the backbone reads of each prompt or class, one after another
    std::vector<float> negative_{};
    std::vector<std::vector<float>> hints_{};
};

} // namespace pulse_train
