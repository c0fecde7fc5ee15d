#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Throws input_error, naming the field, unless every byte count of the table that a step's memory depends on is what
/// the model needs, as in blank_costs: elements x microbatch_size x scalar_bytes, and its statistics. Times and
/// parameter bytes are not looked at.
///
/// Too small a number would let a layer write past its tensor; too large a one would make a plan's peak memory wrong.
PULSE_CONSTEXPR void require_fit(const graph_view& graph, const cost_table& costs, int microbatch_size,
                                 int scalar_bytes);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/runtime/require_fit.ipp> // IWYU pragma: keep
#endif
