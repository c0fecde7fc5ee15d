#pragma once

#include <span>
#include <string>
#include <string_view>

#include <pulse/core/separate.hpp>
#include <pulse/io/timeline_event.hpp>

namespace pulse::io {

/// Text between the quotes of a JSON string (RFC 8259, section 7). Bytes that are no UTF-8 become U+FFFD.
[[nodiscard]] PULSE_INLINE std::string json_escaped(std::string_view text);

/// The events as a JSON trace that Perfetto and chrome://tracing open: a process per rank, a thread per lane, an arrow
/// from each send to the receive that carries the same `flow`. Times become whole nanoseconds.
///
/// Source: "Trace Event Format" (X complete, M metadata, s and f flow, C counter events).
[[nodiscard]] PULSE_INLINE std::string chrome_trace(std::span<const timeline_event> events,
                                                    std::span<const trace_counter> counters = {});

} // namespace pulse::io

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/io/chrome_trace.ipp> // IWYU pragma: keep
#endif
