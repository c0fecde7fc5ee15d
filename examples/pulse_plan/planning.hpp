#pragma once

#include <stop_token>

#include "arguments.hpp"

namespace pulse_plan {

/// Plans what `a` asks for, prints the plan and writes the files. After a stop request it goes on with the best plan so
/// far.
///
/// Throws input_error, which names the argument, file or field, and infeasible_error, which says what binds; nothing
/// has been written then.
void make_plan(const arguments& a, const std::stop_token& stop);

} // namespace pulse_plan
