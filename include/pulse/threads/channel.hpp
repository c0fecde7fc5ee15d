#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::host {

/// How a link between two thread ranks behaves; the default is as fast as memory.
struct link_options {
    /// Added to every message; microseconds.
    double latency_us{};
    /// GB/s (1e9 bytes) of each direction of a pair, one message at a time; 0 is unlimited.
    double bandwidth_gb_per_s{};
    /// A post returns only when the transfer is over: the strictest rendezvous, for proving that nothing deadlocks.
    bool blocking{};
};

enum class side : std::uint8_t { sender, receiver };

/// The first failure of a group of ranks. It can be set when there is no memory left, though then without its text.
class failure {
public:
    /// Whether this one was the first.
    bool set(std::string_view what) noexcept {
        if (set_) { return false; }
        set_ = true;
        try {
            text_ = what;
        } catch (...) { text_.clear(); }
        return true;
    }
    [[nodiscard]] explicit operator bool() const noexcept { return set_; }
    [[nodiscard]] std::string_view text() const noexcept {
        return text_.empty() ? "a rank failed" : std::string_view{text_};
    }
    void throw_if_set() const {
        if (set_) { throw peer_failed{std::string{text()}}; }
    }

private:
    bool set_{};
    std::string text_;
};

/// One direction between two ranks: messages meet in the order in which both sides post them.
class channel {
public:
    /// Starts the transfer when the other side is already there. Throws peer_failed, or error when the two sides
    /// disagree.
    void post(side who, message_id message, std::span<message_part> parts, const link_options& link) {
        {
            const std::lock_guard lock{mutex_};
            failed_.throw_if_set();
            std::uint64_t& next = who == side::sender ? next_send_ : next_recv_;
            const std::uint64_t mine = next++;
            if (mine - oldest_ >= ring_.size()) { grow(); }
            transfer& t = at(mine);
            (who == side::sender ? t.out : t.in) = posting{message, parts, true, false};
            if (t.out.posted && t.in.posted) { move(t, link); }
        }
        changed_.notify_all();
        if (link.blocking) { wait(who, message, false); }
    }

    /// Returns when the oldest transfer of `message` is over for this side. Throws peer_failed, or error when the other
    /// side has left without posting it.
    void wait(side who, message_id message) { wait(who, message, true); }

    /// Whether the receiver's wait for the oldest transfer of `message` would return, or throw, at once. Throws as
    /// wait.
    [[nodiscard]] bool arrived(message_id message) {
        const std::lock_guard lock{mutex_};
        failed_.throw_if_set();
        const transfer& t = at(find(side::receiver, message));
        return t.done ? t.arrived <= clock::now() : left_[0] >= 0;
    }

    /// Every present and future post and wait throws. No transfer is under way when it returns, and none follows.
    void fail(std::string_view what) noexcept {
        {
            const std::lock_guard lock{mutex_};
            failed_.set(what);
        }
        changed_.notify_all();
    }

    /// The rank at that side posts nothing more; what it has posted still meets its other half.
    void leave(side who, int rank) {
        {
            const std::lock_guard lock{mutex_};
            left_[static_cast<std::size_t>(who)] = rank;
        }
        changed_.notify_all();
    }

    [[nodiscard]] traffic_count delivered() {
        const std::lock_guard lock{mutex_};
        return delivered_;
    }

private:
    using clock = std::chrono::steady_clock;

    struct posting {
        message_id message{};
        std::span<message_part> parts{};
        bool posted{};
        bool waited{};
    };
    struct transfer {
        posting out;
        posting in;
        bool done{};
        clock::time_point left{};    ///< the sender's buffers are free
        clock::time_point arrived{}; ///< the receiver may read
    };

    transfer& at(std::uint64_t number) { return ring_[number % ring_.size()]; }

    void grow() {
        std::vector<transfer> wider(ring_.size() * 2);
        for (std::uint64_t n = oldest_; n != oldest_ + ring_.size(); ++n) { wider[n % wider.size()] = at(n); }
        ring_ = std::move(wider);
    }

    void move(transfer& t, const link_options& link) {
        if (t.out.message != t.in.message || t.out.parts.size() != t.in.parts.size()) {
            throw error{"pulse: two ranks disagree about the next message between them"};
        }
        std::int64_t bytes = 0;
        for (std::size_t i = 0; i != t.out.parts.size(); ++i) {
            message_part& from = t.out.parts[i];
            message_part& to = t.in.parts[i];
            if (from.bytes != to.bytes) { throw error{"pulse: two ranks disagree about the size of a message"}; }
            if (from.may_exchange) {
                std::swap(from.data, to.data);
                delivered_.handed_over += static_cast<std::int64_t>(from.bytes);
            } else {
                std::memcpy(to.data, from.data, from.bytes);
            }
            delivered_.of(from.kind) += static_cast<std::int64_t>(from.bytes);
            bytes += static_cast<std::int64_t>(from.bytes);
        }
        ++delivered_.messages;
        t.done = true;
        if (link.latency_us > 0 || link.bandwidth_gb_per_s > 0) { occupy(t, link, bytes); }
    }

    void occupy(transfer& t, const link_options& link, std::int64_t bytes) {
        const auto span_of = [](double us) { return std::chrono::nanoseconds{static_cast<std::int64_t>(us * 1e3)}; };
        const double wire_us =
            link.bandwidth_gb_per_s > 0 ? static_cast<double>(bytes) / link.bandwidth_gb_per_s * 1e-3 : 0;
        const clock::time_point now = clock::now();
        t.left = (now > link_free_ ? now : link_free_) + span_of(wire_us);
        t.arrived = t.left + span_of(link.latency_us);
        link_free_ = t.left;
    }

    void wait(side who, message_id message, bool retire) {
        std::unique_lock lock{mutex_};
        const std::uint64_t number = find(who, message);
        for (;;) {
            failed_.throw_if_set();
            transfer& t = at(number);
            if (t.done) {
                const clock::time_point ready = who == side::sender ? t.left : t.arrived;
                if (ready <= clock::now()) { break; }
                changed_.wait_until(lock, ready);
            } else if (const int rank = left_[who == side::sender ? 1 : 0]; rank >= 0) {
                throw error{"pulse: rank " + std::to_string(rank) +
                            " has returned, and another waits for a message with it"};
            } else {
                changed_.wait(lock);
            }
        }
        if (!retire) { return; }
        (who == side::sender ? at(number).out : at(number).in).waited = true;
        while (oldest_ != next_send_ && oldest_ != next_recv_ && at(oldest_).out.waited && at(oldest_).in.waited) {
            at(oldest_) = transfer{};
            ++oldest_;
        }
    }

    std::uint64_t find(side who, message_id message) {
        const std::uint64_t end = who == side::sender ? next_send_ : next_recv_;
        for (std::uint64_t n = oldest_; n != end; ++n) {
            const posting& mine = who == side::sender ? at(n).out : at(n).in;
            if (mine.posted && !mine.waited && mine.message == message) { return n; }
        }
        throw error{"pulse: a rank waits for a message that it never posted"};
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<transfer> ring_{64};
    std::uint64_t oldest_{};
    std::uint64_t next_send_{};
    std::uint64_t next_recv_{};
    clock::time_point link_free_{};
    traffic_count delivered_{};
    failure failed_;
    std::array<int, 2> left_{-1, -1}; ///< of each side: the rank that has returned, or -1
};

} // namespace pulse::host
