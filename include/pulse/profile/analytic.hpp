#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// The cost table of a graph with every byte filled in and every time 0: bytes = elements x batch x scalar_bytes
/// (parameters: elements x scalar_bytes; statistics: see layer_node::saved_bytes). What analytic_costs and
/// measure_costs start from.
///
/// Throws input_error when the graph has no layer, the batch is not positive, scalar_bytes is not 2, 4 or 8, or a skip
/// does not go forwards between two layers.
[[nodiscard]] PULSE_CONSTEXPR cost_table blank_costs(const graph_view& graph, int microbatch_size, int scalar_bytes);

/// Costs of a graph on a device that nobody has to own: the roofline of the device at its stated efficiency.
///
/// With rates = efficiency x peak, a pass takes max(FLOPs / FLOP rate, bytes moved / memory rate), where
/// - F does the layer's forward FLOPs and moves input, skip inputs, output and saved tensors, and the parameters once;
/// - backward does twice the forward FLOPs in all: a layer with parameters does one half in B and one half in W, a
///   layer without parameters does all of it in B and has no W;
/// - B and W each move as many bytes as F (they read what F read or left, and write gradients of the same sizes).
/// Attention's two products have no weight gradient, so a block of projections and attention has somewhat more B and
/// less W than this rule says; F + B + W is the same. Throws input_error as blank_costs, and when the device has no
/// stated rate for scalars of this size.
[[nodiscard]] PULSE_CONSTEXPR cost_table analytic_costs(const graph_view& graph, const device& on, int microbatch_size,
                                                        int scalar_bytes);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/profile/analytic.ipp> // IWYU pragma: keep
#endif
