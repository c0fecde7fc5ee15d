#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <pulse/core/label.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/nn/value_graph.hpp>
#include <pulse/zoo/controlnet.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/hunyuan_dit.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>
#include <pulse/zoo/uvit.hpp>

namespace pulse {

/// A backbone of the zoo as a value, for programs that select one by name.
struct known_model {
    label name{};
    graph_view graph{};
    /// Builds the graph at another extent; null if the model has a fixed size.
    value_graph (*at)(const extent& to){};
    /// Extent of the learned positions, which other extents resample; {} if none are learned.
    extent positions{};

    /// Number of trained scalars, including the conditioning module's.
    [[nodiscard]] constexpr std::int64_t parameter_count() const noexcept {
        std::int64_t sum = 0;
        for (const layer_node& layer : graph.layers) { sum += layer.parameter_elements; }
        return sum;
    }
};

/// The graph of M with static lifetime.
template <class M>
inline constexpr auto lasting_graph = graph_of<M>();

template <class M>
[[nodiscard]] constexpr known_model known_model_of() noexcept {
    known_model known{M::name, lasting_graph<M>.view()};
    if constexpr (resizable_model<M>) {
        known.at = [](const extent& to) { return value_graph_of(M::config, to); };
    }
    if constexpr (learns_positions<M>()) { known.positions = extent_of<M>(); }
    return known;
}

/// Every backbone that is known by name. Including this header costs several seconds of compile time.
inline constexpr std::array known_models{known_model_of<sd15>(),
                                         known_model_of<sd21>(),
                                         known_model_of<controlnet_sd15>(),
                                         known_model_of<sdxl>(),
                                         known_model_of<uvit_s2>(),
                                         known_model_of<uvit_m4>(),
                                         known_model_of<uvit_l2>(),
                                         known_model_of<uvit_h2>(),
                                         known_model_of<hunyuan_dit_v11>(),
                                         known_model_of<hunyuan_dit_v12>(),
                                         known_model_of<ddpm_cifar10>(),
                                         known_model_of<ddpm_fmnist>()};

/// The known model of this name, or null.
[[nodiscard]] constexpr const known_model* find_model(std::string_view name) noexcept {
    for (const known_model& known : known_models) {
        if (known.name.view() == name) { return &known; }
    }
    return nullptr;
}

} // namespace pulse
