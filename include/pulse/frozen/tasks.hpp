#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/diffusers/model_files.hpp>
#include <pulse/frozen/caption_encoder.hpp>
#include <pulse/frozen/carried.hpp>
#include <pulse/frozen/chain.hpp>
#include <pulse/frozen/picture_extents.hpp>
#include <pulse/frozen/posterior_source.hpp>
#include <pulse/frozen/sample_row.hpp>
#include <pulse/frozen/text.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/profile/analytic_frozen.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/runtime/encoding.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/zoo/frozen_graphs.hpp>
#include <pulse/zoo/frozen_networks.hpp>

namespace pulse::frozen {

/// The layers that a call runs on one of its samples.
[[nodiscard]] inline layers_of_chain layers_of(const std::vector<frozen_component>& components, const encoding& call,
                                               int sample) {
    const frozen_component& of = components[static_cast<std::size_t>(call.what.component)];
    const auto first = static_cast<std::size_t>(call.what.first_layer);
    const auto last = static_cast<std::size_t>(call.what.last_layer);
    const bool ends = last + 1 == of.layers.size();
    return {first, last, first == 0 ? nullptr : sample_in(call.from, sample, of.layers[first - 1].output_bytes),
            sample_in(call.to, sample, ends ? of.result_bytes : of.layers[last].output_bytes)};
}

/// A model's frozen networks as the components of a plan's frozen tasks, layer by layer. Pictures yield their latents,
/// followed by their picture_facts; each text encoder yields its result for a caption.
template <class Model, class Math>
struct tasks {
    using networks = networks_of<Model>;
    using text_encoders = caption_encoder<Model, Math>;
    using picture_encoder = folder_pictures<networks, Math>;

    static constexpr int of_pictures = 0;
    /// The first text encoder; the others follow.
    static constexpr int of_texts = 1;

    /// Components without times, with the bytes of the largest of the pictures' sizes.
    [[nodiscard]] static std::vector<frozen_component> components(const std::vector<picture_extents>& sizes) {
        std::vector<extent> pixels;
        std::size_t most_pixels = 0;
        for (const picture_extents& one : sizes) {
            pixels.push_back(one.pixels);
            most_pixels = std::max(most_pixels, pixels_of(one));
        }
        const auto latent_bytes =
            static_cast<std::int64_t>(posterior_source<networks>::elements_of(greatest_latents(sizes)) * sizeof(float));
        // Calls of several would need memory for all and gain 1 %: the network is small compared with its pictures.
        std::vector<frozen_component> all{{.name = "pictures",
                                           .feeds = frozen_use::input,
                                           .input_bytes = static_cast<std::int64_t>(most_pixels * sizeof(float)),
                                           .result_bytes = latent_bytes + fact_bytes,
                                           .max_chunk = 1,
                                           .layers = picture_encoder::layers(pixels)}};
        for (frozen_layer& layer : all.front().layers) { layer.output_bytes += fact_bytes; }
        networks::each_text(
            [&]<class Component>(const Component*) { all.push_back(folder_text<Component, Math>::component()); });
        return all;
    }
    /// Whether `timed` equals these components except for times.
    [[nodiscard]] static bool fits(std::vector<frozen_component> timed, const std::vector<picture_extents>& sizes) {
        for (frozen_component& one : timed) {
            for (frozen_layer& layer : one.layers) { layer.call_us = layer.sample_us = 0; }
        }
        return timed == components(sizes);
    }
    /// Components with times estimated from a device's rates (analytic_frozen): the same in every process, without
    /// loading weights. For pictures of several sizes, the mean by share: a step encodes for the next one, whatever its
    /// size.
    [[nodiscard]] static std::vector<frozen_component> estimated(const device& on,
                                                                 const std::vector<picture_extents>& sizes,
                                                                 const std::vector<double>& shares = {1.0}) {
        std::vector<frozen_component> all = components(sizes);
        for (std::size_t s = 0; s != sizes.size(); ++s) {
            const auto encoder = encoder_graph(sizes[s]);
            const std::vector<frozen_graph> graphs = frozen_graphs<networks>(encoder.view());
            std::size_t next = all.size() - graphs.size(); // pixels have no network
            for (const frozen_graph& graph : graphs) {
                std::vector<frozen_layer>& to = all[next++].layers;
                const frozen_component from =
                    analytic_frozen(graph, on, static_cast<int>(sizeof(typename Math::scalar)));
                // A task's last layer may run several layers of the network.
                for (std::size_t l = 0; l != from.layers.size(); ++l) {
                    frozen_layer& layer = to[std::min(l, to.size() - 1)];
                    layer.call_us += shares[s] * from.layers[l].call_us;
                    layer.sample_us += shares[s] * from.layers[l].sample_us;
                }
            }
        }
        return all;
    }
    /// Components with times measured on `math`, with the networks of a pipeline.
    [[nodiscard]] static std::vector<frozen_component> measured(const diffusers::model_files& from, Math math,
                                                                const std::vector<picture_extents>& sizes,
                                                                const std::vector<double>& shares = {1.0}) {
        std::vector<frozen_component> all = components(sizes);
        std::vector<float> picture;
        std::vector<float> result;
        measure(
            math, all.front(), shares,
            [&](const std::vector<bool>& layers) {
                return picture_encoder{from, math, layers, sizes.front().pixels};
            },
            [&](picture_encoder& network, std::size_t size) {
                network.resize(sizes[size].pixels);
                picture.resize(pixels_of(sizes[size]));
                result.resize(2 * posterior_source<networks>::elements_of(sizes[size].latents));
            },
            [&](picture_encoder& network, const layers_of_chain& which, int) {
                network.run_layers(which, picture, result);
            });
        std::size_t next = of_texts;
        networks::each_text([&]<class Component>(const Component*) {
            using text = folder_text<Component, Math>;
            result.resize(text::result_elements);
            measure(
                math, all[next++], {1.0},
                [&](const std::vector<bool>& layers) {
                    return text{from, math, layers, timed_samples};
                },
                [](const text&, std::size_t) {},
                [&](text& network, const layers_of_chain& which, int samples) {
                    const text_of_call one{which, "a caption", "a caption", result};
                    network.run_layers(std::vector<text_of_call>(static_cast<std::size_t>(samples), one));
                });
        });
        return all;
    }

private:
    static constexpr std::int64_t fact_bytes = sizeof(picture_facts);
    static constexpr int timed_samples = 4; ///< in the call that is compared with one of a single sample
    /// Elements of a picture.
    [[nodiscard]] static std::size_t pixels_of(const picture_extents& sizes) noexcept {
        return static_cast<std::size_t>(sizes.pixels.height) * static_cast<std::size_t>(sizes.pixels.width) *
               static_cast<std::size_t>(networks::picture_config.in_channels);
    }
    /// Graph of the autoencoder's encoder, if there is one.
    [[nodiscard]] static auto encoder_graph([[maybe_unused]] const picture_extents& sizes) {
        if constexpr (has_autoencoder<networks>) {
            using encoder = typename networks::encoder;
            return graph_of<encoder>(resize<encoder>(sizes.pixels));
        } else {
            return static_graph<0, 0>{};
        }
    }

    /// Times one layer after another. Only that layer's weights are loaded, since the device may not have room for all:
    /// make(layers) returns such a network, size(network, s) sets it to the size of share s, and run(network,
    /// layers_of_chain, k) runs it once on k equal samples, which all share the same memory.
    template <class Make, class Size, class Run>
    static void measure(Math& math, frozen_component& component, const std::vector<double>& shares, const Make& make,
                        const Size& size, const Run& run) {
        typename space_of<Math>::template array<std::byte> from;
        for (std::size_t l = 0; l != component.layers.size(); ++l) {
            std::vector<bool> alone(component.layers.size(), false);
            alone[l] = true;
            auto network = make(alone);
            frozen_layer& layer = component.layers[l];
            decltype(from) to(static_cast<std::size_t>(layer.output_bytes));
            for (std::size_t s = 0; s != shares.size(); ++s) {
                size(network, s);
                const auto least_us = [&](int samples) {
                    double least = 0;
                    for (int i = 0; i != 3; ++i) { // the first is a warm-up
                        const auto began = std::chrono::steady_clock::now();
                        run(network, layers_of_chain{l, l, from.data(), to.data()}, samples);
                        wait_for(math);
                        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
                        least = i < 2 ? took.count() : std::min(least, took.count());
                    }
                    return least;
                };
                const double one_us = least_us(1);
                const int more = std::min(component.max_chunk, timed_samples) - 1;
                const double call_us =
                    more == 0 ? 0 : std::clamp(one_us - (least_us(more + 1) - one_us) / more, 0.0, one_us);
                layer.call_us += shares[s] * call_us;
                layer.sample_us += shares[s] * (one_us - call_us);
            }
            from = std::move(to);
        }
    }
};

} // namespace pulse::frozen
