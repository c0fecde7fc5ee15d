#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// DiffusionPipe's greedy filling (Tian et al., 2024): frozen work in the bubbles of `passes`, whose times stay.
///
/// A bubble is a time in which the same devices are idle, `shortest_us` at least; bubbles are filled in order of time.
/// All samples are divided over the idle devices, and every layer is run on all of them before the next: first the
/// consecutive layers of the components that fill the bubble longest, then one layer with as many samples as fit. What
/// is left runs on all devices after the passes. A sample stays on its device where that is idle; an activation that
/// moves takes the link. Every device has all weights: `hosts` and `split` must be empty. Ignores memory limits. The
/// lower bound is 0. Throws input_error where some devices have not all components.
[[nodiscard]] PULSE_CONSTEXPR filled_schedule greedy_fill(const schedule& passes, const frozen_work& work,
                                                          double shortest_us);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/baselines/greedy_fill.ipp> // IWYU pragma: keep
#endif
