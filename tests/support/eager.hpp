#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/model.hpp>
#include <pulse/nn/attention.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/dit.hpp>
#include <pulse/nn/dit_block.hpp>
#include <pulse/nn/hunyuan_conditioning.hpp>
#include <pulse/nn/mlp_embedding.hpp>
#include <pulse/nn/norm.hpp>
#include <pulse/nn/resnet.hpp>
#include <pulse/nn/spatial_transformer.hpp>
#include <pulse/nn/text_block.hpp>
#include <pulse/nn/text_conditioning.hpp>
#include <pulse/nn/time_embedding.hpp>
#include <pulse/nn/vit.hpp>
#include <pulse/nn/vit_block.hpp>

// What an eager framework (PyTorch's autograd) keeps of a layer for its backward pass, per sample: inputs of
// convolutions, linear layers, norms and activations, both factors of a gated product, and q, k, v and the output of an
// attention that stores no scores. Each tensor counts once; the layer's inputs count, its output does not. Norm
// statistics and attention's log-sum-exps are left out.
//
// pulse's own passes keep less: they recompute normalised tensors from the statistics (resnet, norm_conv), do not store
// doubled and padded images (upsample, downsample), and SiLU(temb) travels with the conditioning.

namespace pulse {

namespace nn {

// Each overload: elements per sample that eager execution keeps of the part for backward.

[[nodiscard]] constexpr std::int64_t eager_elements(const conv& c) noexcept {
    return elements(c.input()) + elements(c.skip_input());
}
/// Includes the padded image where padding is a separate step.
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
/// Inputs of the norm, of proj_in and of proj_out. Of each block: inputs of the three norms and of what follows them;
/// q, k, v and the output of attn1; q and the output of attn2; values and gates, gelu(gate) and their product; k and v
/// of the text.
[[nodiscard]] constexpr std::int64_t eager_elements(const spatial_transformer& t) noexcept {
    const std::int64_t text = std::int64_t{t.core.context_tokens} * t.core.channels;
    return 3 * t.core.image() + t.depth * ((12 + 8 + 4 + 4) * t.core.image() + 2 * text);
}
[[nodiscard]] constexpr std::int64_t eager_elements(const vit_embed& v) noexcept { return elements(v.input()); }
/// The concatenation; inputs of norm1, qkv, proj, norm2 and fc1; q, k and v; both sides of the GELU.
[[nodiscard]] constexpr std::int64_t eager_elements(const vit_block& v) noexcept {
    return ((v.skip ? 2 : 0) + 5 + 3 + 4 + 4) * v.states();
}
/// Inputs of the norm, of decoder_pred and of the convolution.
[[nodiscard]] constexpr std::int64_t eager_elements(const vit_head& v) noexcept {
    return 2 * elements(v.input()) + (v.convolves ? elements(v.output()) : 0);
}
[[nodiscard]] constexpr std::int64_t eager_elements(const patch_embed& p) noexcept { return elements(p.input()); }
/// Inputs of skip_norm and skip_linear; SiLU(temb). Self-attention: inputs of norm1, q, k, v, norm_q, norm_k, the
/// attention, to_out and norm2. Cross-attention: inputs of to_q, norm_q, the attention, to_out and norm3; k of the text
/// before and after norm_k, and v. Feed-forward: its input and both sides of the GELU.
[[nodiscard]] constexpr std::int64_t eager_elements(const dit_block& b) noexcept {
    return ((b.skip ? 4 : 0) + 9 + 5 + 1) * b.states() + b.width + 3 * std::int64_t{b.context_tokens} * b.width +
           2 * std::int64_t{b.tokens()} * b.hidden;
}
/// SiLU(temb) and 1 + scale; inputs of the norm, of the scaling and of proj_out.
[[nodiscard]] constexpr std::int64_t eager_elements(const dit_head& d) noexcept {
    return 2 * std::int64_t{d.embed.features} + 3 * elements(d.input());
}
[[nodiscard]] constexpr std::int64_t eager_elements(const mlp_embedding& m) noexcept {
    return std::int64_t{m.rows} * m.features + 2 * m.hidden_elements();
}
[[nodiscard]] constexpr std::int64_t eager_elements(const time_embedding& t) noexcept {
    return t.features + 2 * std::int64_t{t.width};
}
/// Left out, as in the tables: all of it is about a hundredth of what one block keeps.
[[nodiscard]] constexpr std::int64_t eager_elements(const hunyuan_time_embedding&) noexcept { return 0; }
[[nodiscard]] constexpr std::int64_t eager_elements(const hunyuan_text_embedding& t) noexcept {
    return eager_elements(t.core());
}
[[nodiscard]] constexpr std::int64_t eager_elements(const text_conditioning& t) noexcept {
    return eager_elements(t.time) + (t.adds() ? eager_elements(t.added_mlp()) : 0);
}
[[nodiscard]] constexpr std::int64_t eager_elements(const hunyuan_conditioning& h) noexcept {
    return eager_elements(h.time) + eager_elements(h.text);
}

} // namespace nn

/// Elements per sample that an eager framework keeps of L, inputs included; L is one of pulse's layers or conditioning
/// modules.
template <class L>
[[nodiscard]] constexpr std::int64_t eager_elements() noexcept {
    return nn::eager_elements(L::math);
}

/// The graph of a model made of pulse's layers, with the memory of an eager framework instead of pulse's own passes:
/// for plans that an eager framework executes.
///
/// A layer's saved_elements are its eager_elements without its input and skip input, which plans count as outputs of
/// other layers; layer 0 also counts the conditioning module's. Statistics are left out; the rest is as in graph_of.
template <any_model M>
[[nodiscard]] constexpr auto eager_graph_of() {
    auto graph = uncut_graph_of<M>();
    for (layer_node& node : graph.layers) { node.statistics_elements = 0; }
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        ((graph.layers[I].saved_elements =
              eager_elements<typename M::template layer_at<I>>() - M::template layer_at<I>::input::elements),
         ...);
    }
    (std::make_index_sequence<M::layer_count>{});
    for (const skip_link& edge : graph.skips) {
        graph.layers[static_cast<std::size_t>(edge.to)].saved_elements -= edge.elements;
    }
    if constexpr (M::is_conditioned) { graph.layers[0].saved_elements += eager_elements<typename M::conditioning>(); }
    return graph;
}

} // namespace pulse
