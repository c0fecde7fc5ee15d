#pragma once

#include <stop_token>

#include <pulse/tune/search_space.hpp>

#include "arguments.hpp"
#include "progress.hpp"

namespace pulse_plan {

/// Who orders the passes of the candidates, and who improves the best of them within the time limit.
///
/// Throws input_error when the schedule that was asked for cannot be had. `shown` and `stop` must live as long as the
/// options.
void set_ordering(const arguments& a, pulse::tune_options& options, progress& shown, const std::stop_token& stop);

} // namespace pulse_plan
