#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <pulse/core/label.hpp>
#include <pulse/encode/frozen_layer.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/runtime/text_backend.hpp>

namespace pulse::encode {

/// Which layers of a text_network run, and which of them give its results.
struct network_results {
    std::size_t live{};   ///< layers that run; a checkpoint may have more after them, whose results nobody reads
    std::size_t states{}; ///< the layer whose output is the text states; those that run after it make the pooled text
};

/// A text encoder: layers that run one after another, the first on facts alone. Parts has the name, the number of
/// layers (`count`), `results`, and layer I as the type of layer_of<I>().
///
/// Parameters are those of all layers, one after the other in the checkpoint's order; those of live layers come first.
template <class Parts, class Indices = std::make_index_sequence<Parts::count>>
struct text_network;

template <class Parts, std::size_t... All>
    requires(Parts::results.states < Parts::results.live && Parts::results.live <= Parts::count)
struct text_network<Parts, std::index_sequence<All...>> {
    static constexpr label name = Parts::name;
    static constexpr std::size_t layer_count = Parts::count;
    static constexpr std::size_t live_layers = Parts::results.live;
    static constexpr std::size_t states_layer = Parts::results.states;
    static constexpr bool pools = states_layer + 1 != live_layers;

    template <std::size_t I>
    using layer_at = decltype(Parts::template layer_of<I>());
    using states = typename layer_at<states_layer>::output;    ///< shape<tokens, features> of a text
    using pooled = typename layer_at<live_layers - 1>::output; ///< shape<features> of a text, if the network pools

    /// Offset of each layer's parameters, and the end of the last one's.
    static constexpr std::array<std::int64_t, layer_count + 1> parameter_offsets = [] {
        std::array<std::int64_t, layer_count + 1> offsets{};
        ((offsets[All + 1] = offsets[All] + layer_at<All>::parameter_elements), ...);
        return offsets;
    }();
    static constexpr std::int64_t parameter_elements = parameter_offsets[layer_count];
    static constexpr std::int64_t live_parameter_elements = parameter_offsets[live_layers];

    /// FLOPs per text of the first `layers` layers; by default of those that run.
    [[nodiscard]] static constexpr double forward_flops(std::size_t layers = live_layers) noexcept {
        const std::array<double, layer_count> each{layer_at<All>::forward_flops()...};
        double sum = 0.0;
        for (std::size_t l = 0; l != layers; ++l) { sum += each[l]; }
        return sum;
    }

    /// The names and shapes of the first `L` layers' parameters.
    template <std::size_t L = layer_count>
    [[nodiscard]] static constexpr auto parameters() {
        return [&]<std::size_t... I>(std::index_sequence<I...>) {
            std::array<parameter, (std::size_t{0} + ... + layer_at<I>::parameters().size())> all{};
            auto* to = all.data();
            ((to = std::copy_n(layer_at<I>::parameters().data(), layer_at<I>::parameters().size(), to)), ...);
            return all;
        }
        (std::make_index_sequence<L>{});
    }

    /// Maximum accumulators that a layer needs per text.
    static constexpr std::int64_t statistics_elements = std::max({layer_at<All>::statistics_elements...});

    /// Calls f.operator()<I>() for each layer that runs.
    template <class F>
    static constexpr void for_live_layers(F f) {
        [&]<std::size_t... I>(std::index_sequence<I...>) { (f.template operator()<I>(), ...); }
        (std::make_index_sequence<live_layers>{});
    }

    // Defaults, unless a network says otherwise: no parameter is shared, nothing is pooled, and distances are not read.

    static constexpr std::int64_t shared_at = -1; ///< offset of the shared parameter in the weights; -1: none
    static constexpr std::int32_t end_token = 0;
    [[nodiscard]] static constexpr std::size_t end_of(std::span<const std::int32_t>, std::int32_t) noexcept {
        return 0;
    }
    [[nodiscard]] static constexpr int bucket_of(int) noexcept { return 0; }
};

} // namespace pulse::encode
