#pragma once

#include <span>
#include <string>
#include <string_view>

#include "timeline_event.hpp"

namespace pictures {

/// Text between the quotes of a JSON string (RFC 8259, section 7). Invalid UTF-8 bytes become U+FFFD.
[[nodiscard]] std::string json_escaped(std::string_view text);

/// The events as a JSON trace that Perfetto and chrome://tracing open: a process per rank, a thread per lane, an arrow
/// from each send to the receive that carries the same `flow`. Times become whole nanoseconds.
///
/// Source: "Trace Event Format" (X complete, M metadata, s and f flow, C counter events).
[[nodiscard]] std::string chrome_trace(std::span<const timeline_event> events,
                                       std::span<const trace_counter> counters = {});

} // namespace pictures
