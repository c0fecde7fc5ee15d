#pragma once

#include <cstdint>
#include <string>

namespace pictures {

/// An interval on one rank, in microseconds from a common start.
///
/// Kinds known to the pictures: F, B, W (passes), P (preview), R (recomputed forward), S and V (send, receive),
/// A (all-reduce), O (optimizer step), E (encodes for the next step); any other letter is drawn as "other".
struct timeline_event {
    int rank{};
    int lane{};         ///< row inside the rank: 0 computes, others carry transfers
    std::string name{}; ///< what a trace viewer shows; may be empty
    char kind{};
    int stage = -1;      ///< -1: none
    int microbatch = -1; ///< -1: none
    double start_us{};
    double end_us{};
    std::int64_t flow = 0;  ///< a send and its receive share the same positive number
    std::int64_t bytes = 0; ///< of a transfer

    [[nodiscard]] bool operator==(const timeline_event&) const = default;
};

/// A value on one rank, valid from `time_us` to the next value of its name: bytes held, messages in flight.
struct trace_counter {
    int rank{};
    std::string name{};
    double time_us{};
    double value{};
};

} // namespace pictures
