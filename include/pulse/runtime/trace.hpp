#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pulse {

/// When one instruction of a rank's program ran; nanoseconds of the steady clock.
struct trace_event {
    std::int32_t instruction{};
    std::int64_t start_ns{};
    std::int64_t end_ns{};
    /// Of that: time spent waiting for other ranks.
    std::int64_t waited_ns{};
};

/// A rank's record of its steps: room is taken when it is switched on, so that recording allocates nothing.
class trace {
public:
    using clock = std::chrono::steady_clock;

    trace() = default;
    /// Records until `events` instructions have been seen, then no more.
    explicit trace(std::size_t events) : room_{events} { events_.reserve(events); }

    [[nodiscard]] bool on() const noexcept { return events_.size() < room_; }
    [[nodiscard]] static std::int64_t now_ns() noexcept {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now().time_since_epoch()).count();
    }
    void record(const trace_event& e) { events_.push_back(e); }
    [[nodiscard]] const std::vector<trace_event>& events() const noexcept { return events_; }

private:
    std::size_t room_{};
    std::vector<trace_event> events_;
};

} // namespace pulse
