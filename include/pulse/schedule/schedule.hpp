#pragma once

#include <string>
#include <vector>

#include <pulse/core/pass.hpp>

namespace pulse {

/// One pass with its start and end, microseconds from the start of the step.
struct timed_pass {
    pass op{};
    int stage{};
    int microbatch{};
    double start_us{};
    double end_us{};

    [[nodiscard]] constexpr bool operator==(const timed_pass&) const = default;
};

/// "B of stage 3 of microbatch 7": the form in which messages name a pass.
[[nodiscard]] inline std::string describe(const timed_pass& p) {
    return std::string{letter_of(p.op)} + " of stage " + std::to_string(p.stage) + " of microbatch " +
           std::to_string(p.microbatch);
}

/// Start time and order of every pass on every device; each device's list is ordered by start.
struct schedule {
    std::vector<std::vector<timed_pass>> devices{};

    /// End of the last pass; 0 when empty.
    [[nodiscard]] constexpr double makespan_us() const noexcept {
        double last = 0;
        for (const auto& passes : devices) {
            for (const auto& p : passes) { last = p.end_us > last ? p.end_us : last; }
        }
        return last;
    }
    [[nodiscard]] constexpr bool operator==(const schedule&) const = default;
};

/// Relative gap of a makespan or step time above a lower bound; 0 where there is no bound.
[[nodiscard]] constexpr double gap_of(double makespan_us, double bound_us) noexcept {
    return bound_us > 0 && makespan_us > bound_us ? makespan_us / bound_us - 1 : 0.0;
}

} // namespace pulse
