#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <pulse/profile/frozen_component.hpp>
#include <pulse/runtime/space.hpp>

#include "arguments.hpp"
#include "carried.hpp"
#include "frozen.hpp"
#include "frozen_chain.hpp"
#include "frozen_encoders.hpp"
#include "posterior_source.hpp"
#include "sample_row.hpp"

namespace pulse_train {

/// The frozen networks of a model as the components that frozen tasks of a plan run, layer by layer: pictures give
/// their latents, and behind them what else is known of them (picture_facts); each text encoder gives what it makes of
/// a caption.
template <class Model, class Math>
struct frozen_tasks {
    using frozen = frozen_networks<Model>;
    using text_encoders = caption_encoder<Model, Math>;
    using picture_encoder = frozen_pictures<frozen, Math>;

    static constexpr int of_pictures = 0;
    /// That of the first text encoder; those of others follow.
    static constexpr int of_texts = 1;
    /// Bytes of results, which are floats.
    static constexpr auto latent_bytes = static_cast<std::int64_t>(posterior_source<frozen>::elements * sizeof(float));

    /// Without times.
    [[nodiscard]] static std::vector<pulse::frozen_component> components() {
        // Kernels may depend on the batch: one sample a call gives the bits of encoding before each step.
        std::vector<pulse::frozen_component> all{{.name = "pictures",
                                                  .feeds = pulse::frozen_use::input,
                                                  .input_bytes = static_cast<std::int64_t>(pixels * sizeof(float)),
                                                  .result_bytes = latent_bytes + fact_bytes,
                                                  .max_chunk = 1,
                                                  .layers = picture_encoder::layers()}};
        for (pulse::frozen_layer& layer : all.front().layers) { layer.output_bytes += fact_bytes; }
        each_text([&]<class Text>(const Text*) { all.push_back(Text::component()); });
        return all;
    }
    /// With what they take where `math` computes.
    [[nodiscard]] static std::vector<pulse::frozen_component> measured(const arguments& a, Math math) {
        std::vector<pulse::frozen_component> all = components();
        const std::vector<float> picture(pixels);
        std::vector<float> result(2 * posterior_source<frozen>::elements);
        measure<picture_encoder>(a, math, all.front(), [&](picture_encoder& network, const layers_of_chain& which) {
            network.run_layers(which, picture, result);
        });
        std::size_t next = of_texts;
        each_text([&]<class Text>(const Text*) {
            result.resize(Text::result_elements);
            measure<Text>(a, math, all[next++], [&](Text& network, const layers_of_chain& which) {
                network.run_layers(which, "a caption", "a caption", result);
            });
        });
        return all;
    }

private:
    static constexpr std::int64_t fact_bytes = sizeof(picture_facts);
    static constexpr auto pixels =
        static_cast<std::size_t>(frozen::picture_config.sample_size) *
        static_cast<std::size_t>(frozen::picture_config.sample_size * frozen::picture_config.in_channels);

    template <class Take>
    static void each_text(const Take& take) {
        [&]<class... Text>(const std::tuple<Text...>*) {
            (take(static_cast<const Text*>(nullptr)), ...);
        }(static_cast<const typename text_encoders::networks*>(nullptr));
    }
    /// Times one layer after another. Only that layer's weights are loaded, as the device may have no room for all;
    /// run(network, layers_of_chain) runs it.
    template <class Network, class Run>
    static void measure(const arguments& a, Math& math, pulse::frozen_component& component, const Run& run) {
        typename pulse::space_of<Math>::template array<std::byte> from;
        for (std::size_t l = 0; l != component.layers.size(); ++l) {
            std::vector<bool> alone(component.layers.size(), false);
            alone[l] = true;
            Network network{a.from, math, alone};
            pulse::frozen_layer& layer = component.layers[l];
            decltype(from) to(static_cast<std::size_t>(layer.output_bytes));
            for (int i = 0; i != 3; ++i) { // the first is a warm-up
                const auto began = std::chrono::steady_clock::now();
                run(network, layers_of_chain{l, l, from.data(), to.data()});
                wait_for(math);
                const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
                layer.sample_us = i < 2 ? took.count() : std::min(layer.sample_us, took.count());
            }
            from = std::move(to);
        }
    }
};

} // namespace pulse_train
