#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <pulse/hardware/cluster.hpp>
#include <pulse/nn/attention.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/dit.hpp>
#include <pulse/nn/dit_block.hpp>
#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/norm.hpp>
#include <pulse/nn/resnet.hpp>
#include <pulse/nn/spatial_transformer.hpp>
#include <pulse/nn/token_parts.hpp>
#include <pulse/nn/unet.hpp>
#include <pulse/nn/uvit.hpp>
#include <pulse/nn/value_graph.hpp>
#include <pulse/nn/vit.hpp>
#include <pulse/nn/vit_block.hpp>
#include <pulse/profile/cost_table.hpp>

#include "fully_sharded.hpp"

// Domain (spatial) parallelism: every picture is split by rows over the devices of a group, all of which have the
// weights (Dryden et al. 2019, "Improving strong-scaling of CNN training by exploiting finer-grained parallelism").
// DistriFusion (Li et al. 2024) splits pictures of diffusion models this way; its stale activations suit inference only
// and are not used here.

namespace pulse_bench {

/// What a part of a layer needs from the other devices of its group, in elements of one sample.
struct row_needs {
    int rows{1};                  ///< rows of pixels or patches, which are split
    std::int64_t statistics{};    ///< sums of a group norm
    int halo_rows{};              ///< of both neighbours together
    std::int64_t halo_elements{}; ///< of one halo row
    std::int64_t key_elements{};  ///< keys and values of the whole picture
    double query_flops{};         ///< of the projection and the products of queries
    double query_share{};         ///< the same as a share of the part's arithmetic
};

namespace detail {

[[nodiscard]] constexpr row_needs needs_of(const pulse::nn::conv& c) {
    return {.halo_rows = std::max(c.kernel - c.stride, 0),
            .halo_elements = std::int64_t{c.width} * (c.in_channels + c.skip_channels)};
}
[[nodiscard]] constexpr row_needs needs_of(const pulse::nn::conv& c, int groups) {
    row_needs needs = needs_of(c);
    needs.statistics = 2 * std::int64_t{groups};
    return needs;
}
[[nodiscard]] constexpr row_needs self_attention_needs(std::int64_t tokens, std::int64_t width) {
    return {.key_elements = 2 * tokens * width,
            .query_flops = static_cast<double>(2 * tokens * width * width + 4 * tokens * tokens * width)};
}

[[nodiscard]] constexpr row_needs needs_of(const pulse::nn::resnet::first_half& r) {
    return needs_of(r.conv1(), r.groups);
}
[[nodiscard]] constexpr row_needs needs_of(const pulse::nn::resnet::second_half& r) {
    return needs_of(r.conv2(), r.groups);
}
[[nodiscard]] constexpr row_needs needs_of(const pulse::nn::norm_conv& n) { return needs_of(n.core(), n.groups); }
[[nodiscard]] constexpr row_needs needs_of(const pulse::nn::downsample& d) { return needs_of(d.core()); }
/// Rows are sent before upsampling doubles them.
[[nodiscard]] constexpr row_needs needs_of(const pulse::nn::upsample& u) {
    row_needs needs = needs_of(u.core());
    needs.halo_elements = std::int64_t{u.channels} * u.width;
    return needs;
}
[[nodiscard]] constexpr row_needs needs_of(const pulse::nn::vit_head& h) {
    return h.convolves ? needs_of(h.last()) : row_needs{};
}
[[nodiscard]] constexpr row_needs needs_of(const pulse::nn::attention& a) {
    row_needs needs = self_attention_needs(a.tokens(), a.channels);
    needs.statistics = 2 * std::int64_t{a.groups};
    return needs;
}
[[nodiscard]] constexpr row_needs needs_of(const pulse::nn::token_attention& a) {
    return a.reads_text() ? row_needs{} : self_attention_needs(a.tokens, a.width);
}
[[nodiscard]] constexpr row_needs needs_of(const pulse::nn::dit_block::attention& a) {
    return a.to_text ? row_needs{} : self_attention_needs(a.tokens(), a.width);
}
[[nodiscard]] constexpr row_needs needs_of(const pulse::nn::transformer_in& t) {
    return {.statistics = 2 * std::int64_t{t.core.groups}};
}

/// Layers that process every pixel or token separately. Any other type does not compile.
template <class Math>
concept row_by_row = std::same_as<Math, pulse::nn::transformer_out> ||
    std::same_as<Math, pulse::nn::token_feed_forward> || std::same_as<Math, pulse::nn::vit_embed> ||
    std::same_as<Math, pulse::nn::vit_block::join> || std::same_as<Math, pulse::nn::patch_embed> ||
    std::same_as<Math, pulse::nn::dit_head> || std::same_as<Math, pulse::nn::dit_block::join>;
[[nodiscard]] constexpr row_needs needs_of(const row_by_row auto&) { return {}; }

/// Adds what the parts of a layer need, in the order of the graph's nodes.
template <class Math>
void add_needs(std::vector<row_needs>& all, int rows, const Math& math) {
    const auto add = [&](const auto& part) {
        row_needs needs = needs_of(part);
        needs.rows = rows;
        needs.query_share = needs.query_flops / std::max(1.0, pulse::nn::layout_of(part).sizes.forward_flops);
        all.push_back(needs);
    };
    if constexpr (pulse::nn::in_parts<Math>) {
        for (int k = 0; k != math.parts(); ++k) {
            math.use_part(k, [&](std::string_view, const auto& part) { add(part); });
        }
    } else {
        add(math);
    }
}

} // namespace detail

/// What every part of a model needs, from the mathematics of its layers; rows are those of a layer's output.
[[nodiscard]] inline std::vector<row_needs> row_needs_of(const pulse::unet_config& c) {
    std::vector<row_needs> all{};
    const pulse::unet_values values{c};
    for (const pulse::unet_layer& l : values.layers) {
        pulse::use_math(c, l, [&](const auto& math) { detail::add_needs(all, math.output()[1], math); });
    }
    return all;
}
[[nodiscard]] inline std::vector<row_needs> row_needs_of(const pulse::uvit_config& c) {
    std::vector<row_needs> all{};
    const pulse::nn::vit_embed embed = pulse::embed_of(c);
    detail::add_needs(all, embed.rows, embed);
    for (int i = 0; i <= c.depth; ++i) { detail::add_needs(all, embed.rows, pulse::vit_block_of(c, i > c.depth / 2)); }
    detail::add_needs(all, embed.rows, pulse::head_of(c));
    return all;
}
[[nodiscard]] inline std::vector<row_needs> row_needs_of(const pulse::hunyuan_dit_config& c) {
    std::vector<row_needs> all{};
    const pulse::nn::patch_embed embed = pulse::embed_of(c);
    detail::add_needs(all, embed.rows(), embed);
    for (int i = 0; i != c.num_layers; ++i) {
        detail::add_needs(all, embed.rows(), pulse::dit_block_of(c, i > c.num_layers / 2));
    }
    detail::add_needs(all, embed.rows(), pulse::head_of(c));
    return all;
}

/// Costs of a device that computes its rows of every picture.
struct split_costs {
    pulse::cost_table costs{};
    /// How long its passes of one microbatch wait for other devices.
    double forward_wait_us{};
    double backward_wait_us{};
    /// Sent by all devices of a group in one forward pass; the backward pass sends as much.
    std::int64_t sent_bytes{};
};

/// Splits pictures by rows over a group of consecutive devices.
///
/// A part takes its time scaled by the largest share of rows of any device, an upper bound of its scaling: what every
/// device repeats (keys of the text, projections of the time) is divided, too. With fewer rows than devices, some
/// devices have none; moving rows between levels that are divided differently costs nothing. Halo rows, and in the
/// backward pass their gradients, are exchanged with both neighbours at once, hidden behind rows without halo. Keys and
/// values, and in the backward pass their summed gradients, travel around a ring, hidden behind the queries and all
/// their products. A group norm waits for one message. Received data is kept for the backward pass, with room for the
/// gradients of all keys and values. Nothing waits for links that the gathers of step_of use, which favours the method.
[[nodiscard]] inline split_costs split_rows(pulse::cost_table costs, const std::vector<row_needs>& needs,
                                            const pulse::cluster& machine, int group, int scalar_bytes) {
    if (needs.size() != costs.layers.size()) {
        throw std::logic_error("split_rows: the needs are those of another model");
    }
    const auto part_of = [&](std::int64_t bytes, std::size_t l) {
        return detail::share_of(bytes * detail::share_of(needs[l].rows, group), needs[l].rows);
    };
    split_costs made{};
    for (std::size_t l = 0; l != needs.size(); ++l) {
        const row_needs& need = needs[l];
        pulse::layer_cost& layer = costs.layers[l];
        const auto mine = static_cast<int>(detail::share_of(need.rows, group));
        const double share = static_cast<double>(mine) / need.rows;
        for (double* us : {&layer.forward_us, &layer.backward_input_us, &layer.backward_weight_us}) { *us *= share; }
        for (std::int64_t* bytes : {&layer.saved_bytes, &layer.output_bytes, &layer.deferred_bytes,
                                    &layer.workspace_bytes, &layer.frozen_output_bytes, &layer.open_bytes}) {
            *bytes = part_of(*bytes, l);
        }
        detail::sharded_rings ring{machine, false};
        ring.group = static_cast<int>(detail::share_of(need.rows, mine));
        const std::int64_t others = ring.group - 1;
        if (others == 0) { continue; }
        const std::int64_t scalars = std::int64_t{costs.microbatch_size} * scalar_bytes;
        const std::int64_t sums = need.statistics * costs.microbatch_size * 4;
        const std::int64_t halo = need.halo_rows == 0 ? 0 : need.halo_elements * scalars;
        const std::int64_t keys = need.key_elements * scalars;
        const double inner = static_cast<double>(std::max(mine - need.halo_rows, 0)) / mine;
        const double hides = keys != 0 ? need.query_share : inner;
        const double exchange_us = (halo != 0 ? ring.hop_us(halo) : 0.0) +
                                   (keys != 0 ? static_cast<double>(others) * ring.hop_us(part_of(keys, l)) : 0.0);
        const auto wait_us = [&](double pass_us) {
            return (sums != 0 ? ring.hop_us(sums) : 0.0) + std::max(0.0, exchange_us - hides * pass_us);
        };
        const double forward = wait_us(layer.forward_us);
        const double backward = wait_us(layer.backward_input_us + layer.backward_weight_us);
        layer.forward_us += forward;
        layer.backward_input_us += backward;
        made.forward_wait_us += forward;
        made.backward_wait_us += backward;
        made.sent_bytes += others * (need.halo_rows * halo + keys + ring.group * sums);
        layer.saved_bytes += need.halo_rows * halo + keys - part_of(keys, l);
        layer.workspace_bytes += keys - part_of(keys, l);
    }
    for (pulse::skip_cost& s : costs.skips) { s.bytes = part_of(s.bytes, static_cast<std::size_t>(s.from)); }
    costs.input_bytes = part_of(costs.input_bytes, 0);
    made.costs = std::move(costs);
    return made;
}

/// The fastest step that fits, for groups of one size.
struct best_split {
    int group{};
    sharding how{};
    sharded_step step{};
    double wait_us{};          ///< of the step, waiting for other devices of the group
    std::int64_t sent_bytes{}; ///< in the step, by all devices, within their groups
};

/// Groups are replicas of each other. Every device has gradients of all weights, so gradients are summed and the state
/// is sharded over all devices (or, hybrid, over those of a node) as in tune_sharding. That chooses the rest for the
/// microbatches of a group; it is given the batch as if each device of a group had its own pictures.
template <class CostsOf>
[[nodiscard]] std::optional<best_split> tune_split(CostsOf costs_of, const std::vector<row_needs>& needs,
                                                   const pulse::cluster& machine, const sharded_state& state,
                                                   int global_batch, int group) {
    std::optional<best_split> best{};
    const auto split = [&](int size) {
        return split_rows(costs_of(size), needs, machine, group, state.kept.scalar_bytes);
    };
    for (const bool hybrid : {false, true}) {
        if (hybrid && machine.nodes == 1) { continue; }
        const auto found =
            tune_sharding([&](int size) { return split(size).costs; }, machine, state, global_batch * group, hybrid);
        if (!found || (best && best->step.step_us <= found->step.step_us)) { continue; }
        const split_costs one = split(found->how.microbatch_size);
        const int forwards = found->how.recompute ? 2 : 1;
        best = {group, found->how, found->step,
                found->how.microbatches * (forwards * one.forward_wait_us + one.backward_wait_us),
                one.sent_bytes * (forwards + 1) * found->how.microbatches * (machine.devices() / group)};
    }
    return best;
}

} // namespace pulse_bench
