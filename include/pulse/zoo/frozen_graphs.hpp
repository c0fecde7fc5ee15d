#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pulse/encode/text_chunks.hpp>
#include <pulse/encode/text_facts.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/profile/analytic_frozen.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/zoo/frozen_networks.hpp>

namespace pulse {

/// A forward-only layer as a value.
template <class L>
[[nodiscard]] constexpr layer_node frozen_node_of(std::int64_t input_elements) noexcept {
    layer_node node{}; // nvcc 13 misreads a designated initialiser that skips members
    node.name = L::name;
    node.input_elements = input_elements;
    node.output_elements = L::output::elements;
    node.parameter_elements = L::parameter_elements;
    node.workspace_elements = L::workspace_elements;
    node.forward_flops = L::forward_flops();
    node.statistics_elements = L::statistics_elements;
    return node;
}

/// The live layers of a text encoder as values, each run on all chunks of a text; the first reads the facts of one
/// text.
template <class Network, int Chunks = 1>
[[nodiscard]] constexpr auto frozen_layers_of() {
    std::array<layer_node, Network::live_layers> nodes{};
    std::int64_t input = encode::text_facts{Network::tokens}.elements(1);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        ((nodes[I] = frozen_node_of<typename Network::template layer_at<I>>(input), input = nodes[I].output_elements),
         ...);
    }
    (std::make_index_sequence<Network::live_layers>{});
    for (layer_node& one : nodes) {
        for (std::int64_t* const n :
             {&one.input_elements, &one.output_elements, &one.workspace_elements, &one.statistics_elements}) {
            *n *= Chunks;
        }
        one.forward_flops *= Chunks;
    }
    return nodes;
}

/// The same with static lifetime.
template <class Network, int Chunks = 1>
inline constexpr auto lasting_frozen_layers = frozen_layers_of<Network, Chunks>();

template <class Encoder>
inline constexpr auto lasting_frozen_encoder = graph_of<Encoder>();

/// A text encoder whose states, and pooled text if any, the backbone reads. Every call reads the weights once, so calls
/// take many texts.
template <class Network, int Chunks = 1>
[[nodiscard]] constexpr frozen_graph frozen_text() noexcept {
    std::int64_t result =
        Network::states::elements / Network::tokens * encode::text_chunks{Network::tokens, Chunks}.length();
    if constexpr (Network::pools) { result += Network::pooled::elements; }
    return {Network::name, frozen_use::context, lasting_frozen_layers<Network, Chunks>,
            result,        encode::most_texts,  true};
}

/// The picture encoder; `graph` is its graph at the pictures' extent and outlives the result. Latents are drawn from
/// its moments, which have twice their size. One picture below 512 x 512 pixels does not fill a device: calls take 4.
template <class Encoder>
[[nodiscard]] constexpr frozen_graph frozen_autoencoder(
    const graph_view& graph = lasting_frozen_encoder<Encoder>.view()) noexcept {
    constexpr std::int64_t fills = std::int64_t{512} * 512 * Encoder::config.in_channels;
    return {Encoder::config.name, frozen_use::input, graph.layers, graph.layers.back().output_elements / 2,
            graph.layers.front().input_elements < fills ? 4 : 1};
}

/// The networks of a folder: the autoencoder, if there is one, then the text encoders. `encoder` is the autoencoder's
/// graph at the pictures' extent and outlives the result; without layers the graph of its type is used.
template <class Networks>
[[nodiscard]] constexpr std::vector<frozen_graph> frozen_graphs([[maybe_unused]] const graph_view& encoder = {}) {
    std::vector<frozen_graph> all{};
    if constexpr (frozen::has_autoencoder<Networks>) {
        using network = typename Networks::encoder;
        all.push_back(encoder.layers.empty() ? frozen_autoencoder<network>() : frozen_autoencoder<network>(encoder));
    }
    Networks::each_text([&]<class Component>(const Component*) {
        all.push_back(frozen_text<typename Component::network, Component::chunks.chunks>());
    });
    return all;
}

} // namespace pulse
