#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <pulse/model/extent.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/model/rules.hpp>

namespace pulse {

/// A layer's costs as a value, at the sizes of its type.
template <layer L>
[[nodiscard]] constexpr layer_node node_of() {
    layer_node node{.name = L::name,
                    .input_elements = L::input::elements,
                    .output_elements = L::output::elements,
                    .parameter_elements = parameter_elements<L>(),
                    .saved_elements = L::saved_elements,
                    .deferred_elements = L::deferred_elements,
                    .workspace_elements = L::workspace_elements,
                    .forward_flops = L::forward_flops(),
                    .statistics_elements = statistics_elements<L>(),
                    .frozen_parameter_elements = frozen_parameter_elements<L>()};
    if constexpr (keeps_gradients_back<L>) { node.frozen_output_elements = L::frozen_output_elements; }
    if constexpr (requires { L::frozen_flops(); }) { node.frozen_flops = L::frozen_flops(); }
    if constexpr (requires { L::forward_only_flops(); }) { node.forward_only_flops = L::forward_only_flops(); }
    return node;
}

namespace detail {

/// Counts what makes the conditioning where it runs: before the first layer, in the same workspace.
template <any_model M>
constexpr void add_conditioning(layer_node& first) {
    if constexpr (M::is_conditioned) {
        using module = typename M::conditioning;
        first.parameter_elements += parameter_elements<module>();
        first.forward_flops += module::forward_flops();
        first.frozen_parameter_elements += frozen_parameter_elements<module>();
        if constexpr (requires { module::forward_only_flops(); }) {
            first.forward_only_flops += module::forward_only_flops();
        }
        first.saved_elements += module::saved_elements;
        first.statistics_elements += statistics_elements<module>();
        first.workspace_elements = std::max<std::int64_t>(first.workspace_elements, module::workspace_elements);
    }
}

/// A model at the sizes of its type: data, not code that makes it.
template <any_model M>
inline constexpr auto graph_of_type = [] {
    static_graph<M::layer_count, M::skip_count> graph{.model = M::name};
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        graph.layers = {node_of<typename M::template layer_at<I>>()...};
    }
    (std::make_index_sequence<M::layer_count>{});

    const auto facts = M::layer_list::facts();
    for (std::size_t e = 0; e != M::skip_count; ++e) {
        const std::size_t from = find_layer(facts, M::skip_list::ends[e].from);
        const std::size_t to = find_layer(facts, M::skip_list::ends[e].to);
        graph.skips[e] = {static_cast<int>(from), static_cast<int>(to), graph.layers[from].output_elements,
                          M::skip_list::ends[e].residual};
    }

    add_conditioning<M>(graph.layers[0]);
    if constexpr (M::is_conditioned) {
        using module = typename M::conditioning;
        graph.conditioning_elements = module::output::elements;
        if constexpr (reads_context<module>) {
            graph.conditioning_elements += module::context::elements;
            if constexpr (!trains_context<module>) { graph.frozen_conditioning_elements = module::context::elements; }
        }
    }
    return graph;
}();

} // namespace detail

/// A model as the value that planners read, at the sizes of a run (resize). Stage 0 runs the conditioning module before
/// layer 0, so its parameters, FLOPs, saved elements and statistics are counted there; the two share their workspace.
template <any_model M>
[[nodiscard]] constexpr static_graph<M::layer_count, M::skip_count> graph_of(const resizing& by = {}) {
    auto graph = detail::graph_of_type<M>;
    if constexpr (resizable_model<M>) {
        if (by.same()) { return graph; }
        [&]<std::size_t... I>(std::index_sequence<I...>) { graph.layers = {M::template layer_at<I>::node_at(by)...}; }
        (std::make_index_sequence<M::layer_count>{});
        for (skip_link& s : graph.skips) {
            s.elements = graph.layers[static_cast<std::size_t>(s.from)].output_elements;
        }
        detail::add_conditioning<M>(graph.layers[0]);
    }
    return graph;
}

} // namespace pulse
