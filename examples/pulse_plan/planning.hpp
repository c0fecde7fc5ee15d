#pragma once

#include <stop_token>

#include "arguments.hpp"

namespace pulse_plan {

/// Makes the plan of `a`, prints it and writes the files. A stop request ends the search with the best plan so far.
///
/// Throws input_error naming the argument, file or field, and infeasible_error naming the binding limit, both before
/// anything is written.
void make_plan(const arguments& a, const std::stop_token& stop);

} // namespace pulse_plan
