#pragma once

#include <cstddef>
#include <utility>

#include <pulse/core/fingerprint.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/model.hpp>

namespace pulse {

/// Fingerprint of a graph: names, sizes and costs of its layers, and its skips.
[[nodiscard]] constexpr fingerprint fingerprint_of(const graph_view& graph) {
    // A structured binding counts the members: a new one cannot be forgotten here.
    const auto& [model, layers, skips, conditioning, frozen_conditioning] = graph;
    fingerprint all;
    all.add(model.view()).add(conditioning).add(frozen_conditioning).add(layers.size()).add(skips.size());
    for (const layer_node& node : layers) {
        const auto& [name, input, output, parameters, saved, deferred, workspace, flops, statistics, frozen,
                     frozen_output, frozen_flops, forward_only_flops, open, factored] = node;
        all.add(name.view()).add(input).add(output).add(parameters).add(saved).add(deferred).add(workspace);
        all.add(flops).add(statistics).add(open).add(factored);
        // Omitted when zero, so that models without frozen layers keep the fingerprint that existing files hold.
        if (frozen != 0 || frozen_output != 0) {
            all.add(frozen).add(frozen_output).add(frozen_flops).add(forward_only_flops);
        }
    }
    for (const auto& [from, to, elements] : skips) { all.add(from).add(to).add(elements); }
    return all;
}

namespace detail {

template <class Shape>
constexpr void add_shape(fingerprint& to) {
    to.add(Shape::dims.size());
    for (const auto extent : Shape::dims) { to.add(extent); }
}

template <class Parameters>
constexpr void add_parameters(fingerprint& to, const Parameters& all) {
    to.add(all.size());
    for (const parameter& p : all) {
        to.add(p.name.view()).add(p.rank);
        for (const int extent : p.dims) { to.add(extent); }
    }
}

} // namespace detail

/// Fingerprint of a model: its graph, the shapes between its layers, and the names and shapes of its parameters,
/// including the conditioning module's.
template <any_model M>
[[nodiscard]] constexpr fingerprint fingerprint_of() {
    const auto graph = graph_of<M>();
    fingerprint all = fingerprint_of(graph.view());
    const auto add_layer = [&]<class Layer>() {
        detail::add_shape<typename Layer::input>(all);
        detail::add_shape<typename Layer::output>(all);
        detail::add_parameters(all, Layer::parameters());
        if constexpr (has_frozen_parameters<Layer>) { detail::add_parameters(all, Layer::frozen_parameters()); }
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        (add_layer.template operator()<typename M::template layer_at<I>>(), ...);
    }
    (std::make_index_sequence<M::layer_count>{});
    if constexpr (M::is_conditioned) {
        using module = typename M::conditioning;
        all.add(module::name.view());
        detail::add_shape<typename module::output>(all);
        detail::add_parameters(all, module::parameters());
        if constexpr (has_frozen_parameters<module>) { detail::add_parameters(all, module::frozen_parameters()); }
    }
    return all;
}

} // namespace pulse
