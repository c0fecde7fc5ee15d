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
    /// Part of that time spent waiting for other ranks.
    std::int64_t waited_ns{};
};

/// When the gradients of a stage were summed over the replicas, beside other instructions: from the all_reduce until
/// the sums were complete; nanoseconds of the host's steady clock.
struct reduction_event {
    std::int32_t instruction{};
    std::int64_t start_ns{};
    std::int64_t end_ns{};
};

/// A rank's record of its steps by a space's clock. Its memory is allocated at construction, so recording allocates
/// nothing.
template <class Clock>
class basic_trace {
public:
    basic_trace() = default;
    /// Records the first `events` instructions of backend `math`, and up to `reductions` sums over replicas.
    template <class B>
    basic_trace(B& math, std::size_t events, std::size_t reductions = 0) :
        room_{events}, clock_{std::make_unique<Clock>(math, 3 * events + 2 * reductions)} {
        seen_.reserve(events);
        reductions_.reserve(reductions);
    }

    [[nodiscard]] bool on() const noexcept { return seen_.size() < room_; }
    /// The current time on the host.
    [[nodiscard]] static std::int64_t now_ns() noexcept {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }

    /// An instruction begins: it waits first, then works. Only while on().
    void begin(std::int32_t number) { now_ = {number, clock_->now(), {}, {}}; }
    void waited() { now_.ready = clock_->now(); }
    void end() {
        now_.end = clock_->now();
        seen_.push_back(now_);
    }

    /// Whether a sum over replicas whose begin was recorded is in flight.
    [[nodiscard]] bool recording_reductions() const noexcept { return open_reductions_ != 0; }
    /// Begins a sum over replicas: that of instruction `number`. Only while on(); a no-op when memory is full.
    void begin_reduction(std::int32_t number) {
        if (reductions_.size() == reductions_.capacity()) { return; }
        reductions_.push_back({number, clock_->now(), {}, false});
        ++open_reductions_;
    }
    /// The sum that `number` started is complete; `where.now(clock)` is the time. Ignored if its begin was not
    /// recorded.
    template <class Where>
    void end_reduction(std::int32_t number, const Where& where) {
        for (reduction& r : reductions_) {
            if (r.instruction != number || r.over) { continue; }
            r.end = where.now(*clock_);
            r.over = true;
            --open_reductions_;
            return;
        }
    }

    /// The sums over replicas recorded so far; waits for work that has not run yet.
    [[nodiscard]] std::vector<reduction_event> reductions() const {
        std::vector<reduction_event> all;
        for (const reduction& r : reductions_) {
            if (!r.over) { continue; }
            all.push_back({r.instruction, clock_->nanoseconds(r.start), clock_->nanoseconds(r.end)});
        }
        return all;
    }
    /// The instructions recorded so far; waits for work that has not run yet.
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

    struct reduction {
        std::int32_t instruction{};
        typename Clock::mark start{};
        typename Clock::mark end{};
        bool over{};
    };

    std::size_t room_{};
    std::unique_ptr<Clock> clock_{};
    marks now_{};
    std::vector<marks> seen_{};
    std::vector<reduction> reductions_{};
    std::size_t open_reductions_{};
};

/// A record by the host's clock.
using trace = basic_trace<host_clock>;

} // namespace pulse
