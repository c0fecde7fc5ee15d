#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>

#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// What a search may use. With unlimited `seconds` its result depends on the input and `nodes` alone.
struct search_limit {
    double seconds{std::numeric_limits<double>::infinity()};
    /// Schedules, moves or branches tried; each search defines what counts as one.
    std::int64_t nodes{std::numeric_limits<std::int64_t>::max()};
    /// Asks the search to return the best that it has.
    std::stop_token stop{};
};

/// The state of a synthesis, as reported to `synthesis_options::progress`.
struct synthesis_progress {
    double seconds{};
    double makespan_us{};
    double lower_bound_us{};
};

/// The best schedule found, and a makespan that no schedule can beat.
struct synthesis {
    schedule best{};
    double makespan_us{};
    double lower_bound_us{};
    std::int64_t nodes{};
    double seconds{};
    /// False when a limit or a stop request ended the search before it had tried everything.
    bool finished{};

    [[nodiscard]] constexpr double gap() const noexcept { return gap_of(makespan_us, lower_bound_us); }
    /// Bound and makespan agree up to the rounding of sums.
    [[nodiscard]] constexpr bool proved() const noexcept { return gap() <= 1e-9; }
};

/// The phases of `synthesize`.
inline constexpr std::array<std::string_view, 9> synthesis_phases{
    "known_orders", "lists", "devices", "states", "windows", "patterns", "justification", "shifts", "solver"};

struct synthesis_options {
    search_limit limit{.seconds = 1.0};
    /// Called on the searching thread whenever the makespan or the bound improves.
    std::function<void(const synthesis_progress&)> progress{};
    /// Phases to leave out, to measure what they are worth: names from synthesis_phases. Without `lists`, one priority
    /// rule still provides an initial schedule.
    std::set<std::string, std::less<>> without{};
};

} // namespace pulse
