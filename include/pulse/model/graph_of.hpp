#pragma once

#include <algorithm>
#include <array>
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
                    .frozen_parameter_elements = frozen_parameter_elements<L>(),
                    .factored_elements = counts_of<L>().factored};
    if constexpr (keeps_gradients_back<L>) { node.frozen_output_elements = L::frozen_output_elements; }
    if constexpr (requires { L::frozen_flops(); }) { node.frozen_flops = L::frozen_flops(); }
    if constexpr (requires { L::forward_only_flops(); }) { node.forward_only_flops = L::forward_only_flops(); }
    return node;
}

namespace detail {

template <layer L>
[[nodiscard]] constexpr layer_node node_at(const resizing& by) {
    if constexpr (requires { L::node_at(by); }) {
        if (!by.same()) { return L::node_at(by); }
    }
    return node_of<L>();
}

} // namespace detail

/// A part's place in a model: part `part` of the `parts` parts of layer `layer`.
struct part_place {
    int layer{};
    int part{};
    int parts{1};
    bool makes_residual{}; ///< the layer's first part writes the residual

    /// For layer_frame::part: -1 for a one-part layer, which may wrap a layer of several parts and runs it whole.
    [[nodiscard]] constexpr int of_frame() const noexcept { return parts == 1 ? -1 : part; }
};

namespace detail {

// Functions, because nvcc crashes on lambdas here.

template <class L>
constexpr void add_places(part_place*& to, int layer) {
    for (int k = 0; k != part_count<L>(); ++k, ++to) {
        *to = {layer, k, part_count<L>()};
        if constexpr (runs_in_parts<L>) { to->makes_residual = L::makes_residual; }
    }
}
template <any_model M, std::size_t... I>
[[nodiscard]] constexpr std::array<part_place, M::part_count> places_of(std::index_sequence<I...>) {
    std::array<part_place, M::part_count> all{};
    part_place* next = all.data();
    (add_places<typename M::template layer_at<I>>(next, static_cast<int>(I)), ...);
    return all;
}

template <class L>
constexpr void add_nodes(layer_node*& to, const resizing& by) {
    if constexpr (runs_in_parts<L>) {
        for (int k = 0; k != L::part_count; ++k) { *to++ = L::part_at(k, by); }
    } else {
        *to++ = node_at<L>(by);
    }
}
template <any_model M, std::size_t... I>
constexpr void add_all_nodes(layer_node* to, const resizing& by, std::index_sequence<I...>) {
    (add_nodes<typename M::template layer_at<I>>(to, by), ...);
}

} // namespace detail

/// The parts of a model, in the order in which they run.
template <any_model M>
inline constexpr std::array<part_place, M::part_count> part_places =
    detail::places_of<M>(std::make_index_sequence<M::layer_count>{});

/// Position of the first part of layer `layer`; part_count if `layer` is the number of layers.
template <any_model M>
[[nodiscard]] constexpr std::size_t first_part_of(std::size_t layer) noexcept {
    std::size_t at = 0;
    while (at != M::part_count && part_places<M>[at].layer != static_cast<int>(layer)) { ++at; }
    return at;
}

namespace detail {

/// Adds the costs of the conditioning module to the layer it runs before, with which it shares the workspace.
template <any_model M>
constexpr void add_conditioning(layer_node& first) {
    if constexpr (M::is_conditioned) {
        using module = typename M::conditioning;
        first.parameter_elements += parameter_elements<module>();
        first.factored_elements += counts_of<module>().factored;
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

/// Writes the costs of every part of a model.
template <any_model M>
constexpr void list_parts(std::array<layer_node, M::part_count>& to, const resizing& by) {
    add_all_nodes<M>(to.data(), by, std::make_index_sequence<M::layer_count>{});
}

/// Fills in all of a graph but its nodes, and adds the conditioning module's costs to the first node, which runs after
/// it. `ends(from, to)` returns the nodes that a skip between these layers connects.
template <any_model M, std::size_t Nodes, class Ends>
constexpr void complete(static_graph<Nodes, M::skip_count>& graph, const Ends& ends) {
    graph.model = M::name;
    const auto facts = M::layer_list::facts();
    for (std::size_t e = 0; e != M::skip_count; ++e) {
        const auto [from, to] =
            ends(find_layer(facts, M::skip_list::ends[e].from), find_layer(facts, M::skip_list::ends[e].to));
        graph.skips[e] = {static_cast<int>(from), static_cast<int>(to), graph.layers[from].output_elements};
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
}

/// A model's graph at the sizes of its type, as a constant rather than code that builds it.
template <any_model M>
inline constexpr auto graph_of_type = [] {
    static_graph<M::part_count, M::skip_count> graph{};
    list_parts<M>(graph.layers, {});
    // From the last part of the source to the first of the target.
    complete<M>(graph, [](std::size_t from, std::size_t to) {
        return std::pair{first_part_of<M>(from + 1) - 1, first_part_of<M>(to)};
    });
    return graph;
}();

} // namespace detail

/// A model as the value that planners read, part by part, at the sizes of a run (resize). Stage 0 runs the conditioning
/// module before layer 0, so layer 0 includes its parameters, FLOPs, saved elements and statistics; the two share their
/// workspace.
template <any_model M>
[[nodiscard]] constexpr static_graph<M::part_count, M::skip_count> graph_of(const resizing& by = {}) {
    auto graph = detail::graph_of_type<M>;
    if constexpr (resizable_model<M>) {
        if (by.same()) { return graph; }
        detail::list_parts<M>(graph.layers, by);
        for (skip_link& s : graph.skips) {
            s.elements = graph.layers[static_cast<std::size_t>(s.from)].output_elements;
        }
        detail::add_conditioning<M>(graph.layers[0]);
    }
    return graph;
}

/// A model as a value with undivided layers, for code that runs it uncut.
template <any_model M>
[[nodiscard]] constexpr static_graph<M::layer_count, M::skip_count> uncut_graph_of(const resizing& by = {}) {
    static_graph<M::layer_count, M::skip_count> graph{};
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        graph.layers = {detail::node_at<typename M::template layer_at<I>>(by)...};
    }
    (std::make_index_sequence<M::layer_count>{});
    detail::complete<M>(graph, [](std::size_t from, std::size_t to) { return std::pair{from, to}; });
    return graph;
}

} // namespace pulse
