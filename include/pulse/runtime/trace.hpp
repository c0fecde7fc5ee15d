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

/// When the gradients of a stage were summed over the replicas, beside other instructions: from the all_reduce until
/// the sums were there; nanoseconds of the host's steady clock.
struct reduction_event {
    std::int32_t instruction{};
    std::int64_t start_ns{};
    std::int64_t end_ns{};
};

/// A rank's record of its steps by the clock of a space: room is taken when it is switched on, so that recording
/// allocates nothing.
template <class Clock>
class basic_trace {
public:
    basic_trace() = default;
    /// Records until `events` instructions of backend `math` have been seen, then no more; with up to `reductions` sums
    /// over replicas.
    template <class B>
    basic_trace(B& math, std::size_t events, std::size_t reductions = 0) :
        room_{events}, clock_{std::make_unique<Clock>(math, 3 * events + 2 * reductions)} {
        seen_.reserve(events);
        reductions_.reserve(reductions);
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

    /// Whether a sum over replicas is under way whose begin was recorded.
    [[nodiscard]] bool recording_reductions() const noexcept { return open_reductions_ != 0; }
    /// A sum over replicas begins, by the instruction that starts it. Only while on(), and while there is room.
    void begin_reduction(std::int32_t number) {
        if (reductions_.size() == reductions_.capacity()) { return; }
        reductions_.push_back({number, clock_->now(), {}, false});
        ++open_reductions_;
    }
    /// The sum that `number` started is there; `where.now(clock)` is the time. Ignores one whose begin was not
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

    /// The sums over replicas that were recorded so far; waits for what has not yet run.
    [[nodiscard]] std::vector<reduction_event> reductions() const {
        std::vector<reduction_event> all;
        for (const reduction& r : reductions_) {
            if (!r.over) { continue; }
            all.push_back({r.instruction, clock_->nanoseconds(r.start), clock_->nanoseconds(r.end)});
        }
        return all;
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

/// A record by the clock of the host.
using trace = basic_trace<host_clock>;

} // namespace pulse
