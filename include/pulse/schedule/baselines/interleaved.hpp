#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// Interleaved 1F1B (Narayanan et al., 2021; Megatron-LM): v chunks on a device, taken in turn by groups of P
/// microbatches; device d runs 2(P-1-d) + (v-1)P forwards of a chunk to warm up, then one forward and one backward in
/// turn, then the backwards that are left.
///
/// Where M is no multiple of P the groups are larger, as Megatron-LM allows. Split, W follows its B at once. Ignores
/// memory limits. Throws input_error unless the placement is interleaved and M >= P.
[[nodiscard]] PULSE_CONSTEXPR schedule interleaved_one_f_one_b(const schedule_problem& problem);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/baselines/interleaved.ipp> // IWYU pragma: keep
#endif
