#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// The cost table of a graph with all byte counts filled in and all times 0: bytes = elements x batch x scalar_bytes
/// (parameters: elements x scalar_bytes; statistics: see layer_node::saved_bytes). analytic_costs and measure_costs
/// start from it.
///
/// Throws input_error when the graph has no layer, the batch is not positive, scalar_bytes is not 2, 4 or 8, or a skip
/// does not go forwards between two layers.
[[nodiscard]] PULSE_CONSTEXPR cost_table blank_costs(const graph_view& graph, int microbatch_size, int scalar_bytes);

/// Costs of a graph on a device that need not be at hand: the roofline of the device at its stated efficiency.
///
/// With rates = efficiency x peak, a pass takes max(FLOPs / FLOP rate, bytes moved / memory rate), where
/// - F does the layer's forward FLOPs and moves input, skip inputs, output and saved tensors, and the parameters once;
/// - backward does twice the forward FLOPs: half in B and half in W with parameters, all in B without parameters; with
///   frozen parameters only, half in B and nothing else;
/// - B and W each move as many bytes as F (they read what F read or left, and write gradients of the same sizes).
/// Attention's two products have no weight gradient, so a block of projections and attention has somewhat more B and
/// less W than this rule states; F + B + W is the same. Throws input_error for the reasons of blank_costs, and when the
/// device states no rate for scalars of this size.
[[nodiscard]] PULSE_CONSTEXPR cost_table analytic_costs(const graph_view& graph, const device& on, int microbatch_size,
                                                        int scalar_bytes);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/profile/analytic.ipp> // IWYU pragma: keep
#endif
