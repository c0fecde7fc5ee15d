#pragma once

#include <cstdint>
#include <functional>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse::detail {

/// Hands every published order that is defined for the problem, and keeps its memory limits, to `take`, the quick ones
/// first. Before each, `go_on` is asked whether a search that places about that many passes may run.
PULSE_INLINE void for_each_known_order(const schedule_problem& problem, const std::function<bool(std::int64_t)>& go_on,
                                       const std::function<void(const schedule&)>& take);

} // namespace pulse::detail

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/construct/known_orders.ipp> // IWYU pragma: keep
#endif
