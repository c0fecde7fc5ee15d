#pragma once

#include <span>
#include <string>
#include <string_view>

#include "timeline_event.hpp"

namespace pictures {

/// How a timeline is drawn.
struct timeline_plot {
    std::string_view title = "One training step";
    double width = 1200; ///< pixels
};

/// A picture of what every rank did when: one row per rank, passes in colour with their microbatch's number (a rank's
/// later stages are darker), transfers as thin bars below, a line from each send to its receive, legend and time axis.
///
/// Counters, in bytes, are drawn below their rank, stacked in the order in which their names first appear. Events may
/// come in any order; left out are events whose times are not finite or that end before they start, and counters that
/// are not finite, are negative or belong to a rank without events.
[[nodiscard]] std::string timeline_svg(std::span<const timeline_event> events, const timeline_plot& plot = {},
                                       std::span<const trace_counter> counters = {});

} // namespace pictures
