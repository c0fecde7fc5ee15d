#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#include <pulse/runtime/transport.hpp>
#include <pulse/threads/channel.hpp>

namespace pulse::threads {

/// The simulated link between two thread ranks; by default as fast as memory.
struct link_options {
    /// Added to every message; microseconds.
    double latency_us{};
    /// GB/s (1e9 bytes) in each direction of a pair, one message at a time; 0 is unlimited.
    double bandwidth_gb_per_s{};
    /// A post returns only when its transfer is over: the strictest rendezvous, to prove freedom from deadlock.
    bool blocking{};
};

/// Moves the messages of a channel in host memory at once, and reports when the simulated link would have.
class host_copies {
    using clock = std::chrono::steady_clock;

public:
    struct place {};
    /// When each side of a transfer may go on.
    struct mark {
        clock::time_point left{};    ///< the sender's buffers are free
        clock::time_point arrived{}; ///< the receiver may read
    };

    host_copies(const link_options& link, int, int) : link_{link} {}

    [[nodiscard]] static mark mark_of(side) { return {}; }
    static void set(mark&, place) {}
    [[nodiscard]] bool blocks() const noexcept { return link_.blocking; }
    [[nodiscard]] static bool exchanges() noexcept { return true; }
    static void begin(const mark&, const mark&) {}
    static void copy(const message_part& from, const message_part& to) { std::memcpy(to.data, from.data, from.bytes); }
    void end(mark& over, std::int64_t bytes) {
        over = {};
        if (link_.latency_us <= 0 && link_.bandwidth_gb_per_s <= 0) { return; }
        const auto span_of = [](double us) { return std::chrono::nanoseconds{static_cast<std::int64_t>(us * 1e3)}; };
        const double wire_us =
            link_.bandwidth_gb_per_s > 0 ? static_cast<double>(bytes) / link_.bandwidth_gb_per_s * 1e-3 : 0;
        over.left = std::max(clock::now(), free_) + span_of(wire_us);
        over.arrived = over.left + span_of(link_.latency_us);
        free_ = over.left;
    }
    [[nodiscard]] static clock::time_point over(side who, const mark& of) {
        return who == side::sender ? of.left : of.arrived;
    }
    static void join(const mark&, place) {}
    static void settle() noexcept {}

private:
    link_options link_;
    clock::time_point free_{}; ///< when the link is free
};

} // namespace pulse::threads
