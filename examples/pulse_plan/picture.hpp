#pragma once

#include <vector>

#include <pulse/tune/tuning.hpp>

#include "../pictures/timeline_event.hpp"

namespace pulse_plan {

/// A simulated step of one pipeline, as events for pictures and traces: lane 0 computes, lane 1 sends, lane 2 receives.
struct simulated_step {
    std::vector<pictures::timeline_event> events{};
    std::vector<pictures::trace_counter> counters{};
};

[[nodiscard]] simulated_step simulate_step(const pulse::tuning& found);

} // namespace pulse_plan
