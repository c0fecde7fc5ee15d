#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/core/label.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/unet.hpp>
#include <pulse/nn/uvit.hpp>

namespace pulse {

/// A model as a value, built from layers whose mathematics are values, so that a planner can read a model that no
/// compiler has seen. For a config that has a type it equals the type's graph_of.
class value_graph {
public:
    explicit value_graph(const label& model) : view_{.model = model} {}

    /// Appends a layer at the sizes of a run.
    template <class Math>
    void add(const label& name, Math math, const resizing& by = {}) {
        math = nn::resized(math, by);
        list(name, math);
        for (int k = 0; k != nn::parts_of(math); ++k) { nodes_.push_back(nn::part_of(name, math, k)); }
        ends_.push_back(static_cast<int>(nodes_.size()));
    }
    /// Adds the conditioning module to the costs of the first layer, which must exist and which it runs with
    /// (graph_of).
    template <class Math>
    void condition(const label& name, const Math& math) {
        const nn::layer_sizes sizes = list(name, math);
        layer_node& first = nodes_.front();
        first.parameter_elements += sizes.kept.parameters;
        first.factored_elements += sizes.factored;
        first.forward_flops += sizes.forward_flops;
        first.saved_elements += sizes.kept.saved;
        first.statistics_elements += sizes.kept.statistics;
        first.workspace_elements = std::max(first.workspace_elements, sizes.workspace);
        const std::int64_t context = sizes.context[0] == 0 ? 0 : nn::elements(sizes.context);
        view_.conditioning_elements = nn::elements(math.output()) + context;
        view_.frozen_conditioning_elements = sizes.trains_context ? 0 : context;
    }
    /// Adds a skip from a layer to a later one.
    void connect(int from, int to) {
        const int last = ends_[static_cast<std::size_t>(from)] - 1;
        const int first = ends_[static_cast<std::size_t>(to) - 1];
        skips_.push_back({last, first, nodes_[static_cast<std::size_t>(last)].output_elements});
    }

    /// Valid as long as this object.
    [[nodiscard]] graph_view view() const noexcept {
        graph_view all = view_;
        all.layers = nodes_;
        all.skips = skips_;
        return all;
    }
    /// Parameters of the layers and of the conditioning module, in the order in which they were added.
    [[nodiscard]] const std::vector<parameter>& parameters() const noexcept { return parameters_; }

private:
    template <class Math>
    nn::layer_sizes list(const label& name, const Math& math) {
        const nn::layer_sizes sizes = nn::layout_of(math).sizes;
        const std::size_t at = parameters_.size();
        parameters_.resize(at + sizes.parameter_count);
        nn::description listed{name, parameters_.data() + at};
        static_cast<void>(nn::describe(listed, math));
        return sizes;
    }

    graph_view view_;
    std::vector<layer_node> nodes_{}; // parts of layers
    std::vector<int> ends_{};         // end of each layer's parts
    std::vector<skip_link> skips_{};
    std::vector<parameter> parameters_{};
};

/// Layers and edges of a UNet as values.
struct unet_values {
    explicit unet_values(const unet_config& c) : layers(layer_count(c)), skips(skip_count(c)) { lay_out(c, *this); }

    std::vector<unet_layer> layers;
    std::vector<std::array<int, 2>> skips;
};

/// The resizing of a square to an extent whose sides are multiples of `step`.
[[nodiscard]] inline resizing resizing_of(const label& model, int size, int step, const extent& to) {
    if (to == extent{}) { return {}; }
    require_steps(model, {step, step}, to);
    return {{size, size}, to};
}

/// The model of a config without a flaw (flaw_of) at an extent; {}: the config's own. For an extent that the model does
/// not support, throws input_error naming the nearest sizes that it does.
[[nodiscard]] inline value_graph value_graph_of(const unet_config& c, const extent& to = {}) {
    const resizing by = resizing_of(c.name, c.sample_size, 1 << (c.levels() - 1), to);
    const unet_values all{c};
    value_graph graph{c.name};
    for (const unet_layer& l : all.layers) {
        use_math(c, l, [&](const auto& math) { graph.add(l.name, math, by); });
    }
    if (c.reads_text()) {
        graph.condition("conditioning", text_conditioning_of(c));
    } else {
        graph.condition("time_embedding", time_embedding_of(c));
    }
    for (const auto& [from, target] : all.skips) { graph.connect(from, target); }
    return graph;
}

[[nodiscard]] inline value_graph value_graph_of(const hunyuan_dit_config& c, const extent& to = {}) {
    const resizing by = resizing_of(c.name, c.sample_size, c.patch_size, to);
    const int half = c.num_layers / 2;
    value_graph graph{c.name};
    graph.add("pos_embed", embed_of(c), by);
    for (int i = 0; i != c.num_layers; ++i) {
        graph.add(label{"blocks."} + static_cast<unsigned>(i), dit_block_of(c, i > half), by);
    }
    graph.add("proj_out", head_of(c), by);
    graph.condition("conditioning", conditioning_of(c));
    for (int i = half + 1; i != c.num_layers; ++i) { graph.connect(c.num_layers - i, i + 1); }
    return graph;
}

[[nodiscard]] inline value_graph value_graph_of(const uvit_config& c, const extent& to = {}) {
    const resizing by = resizing_of(c.name, c.img_size, c.patch_size, to);
    const int half = c.depth / 2;
    value_graph graph{c.name};
    graph.add("embed", embed_of(c), by);
    for (int i = 0; i != half; ++i) {
        graph.add(label{"in_blocks."} + static_cast<unsigned>(i), vit_block_of(c, false), by);
    }
    graph.add("mid_block", vit_block_of(c, false), by);
    for (int i = 0; i != half; ++i) {
        graph.add(label{"out_blocks."} + static_cast<unsigned>(i), vit_block_of(c, true), by);
        graph.connect(half - i, half + 2 + i);
    }
    graph.add("final", head_of(c), by);
    return graph;
}

} // namespace pulse
