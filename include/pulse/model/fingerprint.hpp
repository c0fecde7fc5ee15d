#pragma once

#include <cstddef>
#include <utility>

#include <pulse/core/fingerprint.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/model.hpp>

namespace pulse {

/// Stands for a graph: names, sizes and costs of its layers, and its skips.
[[nodiscard]] constexpr fingerprint fingerprint_of(const graph_view& graph) {
    fingerprint all;
    all.add(graph.model.view()).add(graph.conditioning_elements).add(graph.layers.size()).add(graph.skips.size());
    for (const layer_node& n : graph.layers) {
        all.add(n.name.view()).add(n.input_elements).add(n.output_elements).add(n.parameter_elements);
        all.add(n.saved_elements).add(n.deferred_elements).add(n.workspace_elements).add(n.forward_flops);
        all.add(n.statistics_elements);
    }
    for (const skip_link& s : graph.skips) { all.add(s.from).add(s.to).add(s.elements).add(s.residual); }
    return all;
}

namespace detail {

template <class Shape>
constexpr void add_shape(fingerprint& to) {
    to.add(Shape::dims.size());
    for (const auto extent : Shape::dims) { to.add(extent); }
}

template <class Part>
constexpr void add_parameters(fingerprint& to) {
    constexpr auto all = Part::parameters();
    to.add(all.size());
    for (const parameter& p : all) {
        to.add(p.name.view()).add(p.rank);
        for (const int extent : p.dims) { to.add(extent); }
    }
}

} // namespace detail

/// Stands for a model: its graph, the shapes between its layers, names and shapes of its parameters, those of its
/// conditioning module included.
template <any_model M>
[[nodiscard]] constexpr fingerprint fingerprint_of() {
    const auto graph = graph_of<M>();
    fingerprint all = fingerprint_of(graph.view());
    const auto add_layer = [&]<class Layer>() {
        detail::add_shape<typename Layer::input>(all);
        detail::add_shape<typename Layer::output>(all);
        detail::add_parameters<Layer>(all);
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        (add_layer.template operator()<typename M::template layer_at<I>>(), ...);
    }
    (std::make_index_sequence<M::layer_count>{});
    if constexpr (M::is_conditioned) {
        using module = typename M::conditioning;
        all.add(module::name.view());
        detail::add_shape<typename module::output>(all);
        detail::add_parameters<module>(all);
    }
    return all;
}

} // namespace pulse
