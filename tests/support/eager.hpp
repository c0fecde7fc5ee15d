#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/model.hpp>
#include <pulse/nn/attention.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/conditioning_modules.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/norm.hpp>
#include <pulse/nn/resnet.hpp>
#include <pulse/nn/time_embedding.hpp>

// What an eager framework (PyTorch's autograd) keeps of a layer for its backward pass, per sample: inputs of
// convolutions, linear layers, norms and activations, both factors of a gated product, and q, k, v and the output of an
// attention that keeps no scores. Each tensor once, the layer's own inputs among them and its output not. Statistics of
// norms and the logarithms of sums of an attention are left out.
//
// pulse's own passes keep less: normalised tensors are made again from the statistics (resnet, norm_conv), doubled and
// padded images are not stored (upsample, downsample), and SiLU(temb) travels with the conditioning.

namespace pulse {

namespace nn {

// Each: what eager execution keeps of the part for backward, elements per sample.

[[nodiscard]] constexpr std::int64_t eager_elements(const conv& c) noexcept {
    return elements(c.input()) + elements(c.skip_input());
}
/// The padded image where padding is a step of its own.
[[nodiscard]] constexpr std::int64_t eager_elements(const downsample& d) noexcept {
    const int more = d.padding == 0 ? 1 : 0;
    return std::int64_t{d.channels} * (d.height + more) * (d.width + more);
}
[[nodiscard]] constexpr std::int64_t eager_elements(const upsample& u) noexcept { return elements(u.core().input()); }
[[nodiscard]] constexpr std::int64_t eager_elements(const norm_conv& c) noexcept { return 3 * elements(c.input()); }
[[nodiscard]] constexpr std::int64_t eager_elements(const attention& a) noexcept { return 6 * elements(a.input()); }
[[nodiscard]] constexpr std::int64_t eager_elements(const resnet& r) noexcept {
    return 3 * (r.all_channels() + std::int64_t{r.out_channels}) * r.pixels() + r.conditioning;
}
[[nodiscard]] constexpr std::int64_t eager_elements(const time_embedding& t) noexcept {
    return t.features + 2 * std::int64_t{t.width};
}

} // namespace nn

/// What an eager framework keeps of L, inputs included; L is one of pulse's layers or conditioning modules.
template <class L>
[[nodiscard]] constexpr std::int64_t eager_elements() noexcept {
    if constexpr (requires { typename L::modules; }) {
        return []<class... Modules>(nn::module_list<Modules...>) {
            return (std::int64_t{0} + ... + eager_elements<Modules>());
        }(typename L::modules{});
    } else if constexpr (requires { L::math.describe(std::declval<nn::layer_description<0>&>(), L::name); }) {
        return nn::sums_of<L::math>.kept;
    } else {
        return nn::eager_elements(L::math);
    }
}

/// A model's graph with the memory of an eager framework instead of pulse's own passes: for plans that it carries out.
/// The model's layers are pulse's.
///
/// saved_elements of a layer are its eager_elements less its input and skip input, which plans count as outputs of
/// other layers; those of the conditioning module are counted in layer 0, and statistics are left out. Everything else
/// is as in graph_of.
template <any_model M>
[[nodiscard]] constexpr auto eager_graph_of() {
    auto graph = graph_of<M>();
    for (layer_node& node : graph.layers) { node.statistics_elements = 0; }
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        ((graph.layers[I].saved_elements =
              eager_elements<typename M::template layer_at<I>>() - M::template layer_at<I>::input::elements),
         ...);
    }
    (std::make_index_sequence<M::layer_count>{});
    for (const skip_link& edge : graph.skips) {
        if (!edge.residual) { graph.layers[static_cast<std::size_t>(edge.to)].saved_elements -= edge.elements; }
    }
    if constexpr (M::is_conditioned) { graph.layers[0].saved_elements += eager_elements<typename M::conditioning>(); }
    return graph;
}

} // namespace pulse
