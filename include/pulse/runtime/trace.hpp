#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <pulse/runtime/space.hpp>

namespace pulse {

/// When one instruction of a rank's program ran; nanoseconds of the host's steady clock.
struct trace_event {
    std::int32_t instruction{};
    std::int64_t start_ns{};
    std::int64_t end_ns{};
    /// Of that: time spent waiting for other ranks.
    std::int64_t waited_ns{};
};

/// A rank's record of its steps by the clock of a space: room is taken when it is switched on, so that recording allocates
/// nothing.
template <class Clock>
class basic_trace {
public:
    basic_trace() = default;
    /// Records until `events` instructions of backend `math` have been seen, then no more.
    template <class B>
    basic_trace(B& math, std::size_t events) : room_{events}, clock_{std::make_unique<Clock>(math, 3 * events)} {
        seen_.reserve(events);
    }

    [[nodiscard]] bool on() const noexcept { return seen_.size() < room_; }
    /// Now, on the host.
    [[nodiscard]] static std::int64_t now_ns() noexcept {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }

    /// An instruction begins: first it waits, then it works. Only while on().
    void begin(std::int32_t number) { now_ = {number, clock_->now(), {}, {}}; }
    void waited() { now_.ready = clock_->now(); }
    void end() {
        now_.end = clock_->now();
        seen_.push_back(now_);
    }

    /// What was recorded so far; waits for what has not yet run.
    [[nodiscard]] std::vector<trace_event> events() const {
        std::vector<trace_event> all;
        all.reserve(seen_.size());
        for (const marks& m : seen_) {
            const std::int64_t start = clock_->nanoseconds(m.start);
            all.push_back({m.instruction, start, clock_->nanoseconds(m.end), clock_->nanoseconds(m.ready) - start});
        }
        return all;
    }

private:
    struct marks {
        std::int32_t instruction{};
        typename Clock::mark start{};
        typename Clock::mark ready{};
        typename Clock::mark end{};
    };

    std::size_t room_{};
    std::unique_ptr<Clock> clock_{};
    marks now_{};
    std::vector<marks> seen_{};
};

/// A record by the clock of the host.
using trace = basic_trace<host_clock>;

} // namespace pulse
