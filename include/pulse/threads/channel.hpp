#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::threads {

enum class side : std::uint8_t { sender, receiver };

/// The first failure of a group of ranks. It can be set even when memory is exhausted, but then without its text.
class failure {
public:
    /// Returns whether this failure is the first.
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

/// One direction between two thread ranks: sends and receives match in the order in which both sides post them, and
/// `Copies` (host_copies, cuda::device_copies) moves the data.
///
/// Copies defines `place`, where a side makes or reads its tensors, and `mark`, a point in the work at a place.
template <class Copies>
class channel {
    using mark = typename Copies::mark;

public:
    using place = typename Copies::place;

    template <class... Of>
    explicit channel(const Of&... of) : copies_{of...}, ring_{make_ring(64)} {}
    channel(const channel&) = delete;
    channel& operator=(const channel&) = delete;

    /// Starts the transfer if the other side has posted its half. Throws peer_failed, or error when the two sides
    /// disagree.
    void post(side who, message_id message, std::span<message_part> parts, place where = {}) {
        {
            const std::lock_guard lock{mutex_};
            failed_.throw_if_set();
            std::uint64_t& next = who == side::sender ? next_send_ : next_recv_;
            const std::uint64_t mine = next++;
            if (mine - oldest_ >= ring_.size()) { grow(); }
            transfer& t = at(mine);
            posting& half = t.half(who);
            half.message = message;
            half.parts = parts;
            half.posted = true;
            half.waited = false;
            copies_.set(half.made, where);
            if (t.out.posted && t.in.posted) { start(t); }
        }
        changed_.notify_all();
        if (copies_.blocks()) { wait(who, message, where, false); }
    }

    /// Returns when later work of this side at `where` may rely on the oldest transfer of `message` being over. Throws
    /// peer_failed, or error when the other side has left without posting it.
    void wait(side who, message_id message, place where = {}) { wait(who, message, where, true); }

    /// Whether the receiver's wait for the oldest transfer of `message` would return, or throw, at once. Throws as wait
    /// does.
    [[nodiscard]] bool arrived(message_id message) {
        const std::lock_guard lock{mutex_};
        failed_.throw_if_set();
        const transfer& t = at(find(side::receiver, message));
        return t.started ? copies_.over(side::receiver, t.over) <= clock::now() : left_[0] >= 0;
    }

    /// Makes every present and future post and wait throw. No transfer is in flight when it returns, and none follows.
    void fail(std::string_view what) noexcept {
        {
            const std::lock_guard lock{mutex_};
            failed_.set(what);
        }
        changed_.notify_all();
        copies_.settle();
    }

    /// The rank at that side posts nothing more; messages it has posted still match their other halves.
    void leave(side who, int rank) {
        {
            const std::lock_guard lock{mutex_};
            left_[static_cast<std::size_t>(who)] = rank;
        }
        changed_.notify_all();
    }

    /// Traffic of the transfers started so far.
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
        mark made; ///< end of the side's work at its place before it posted
    };
    struct transfer {
        posting out;
        posting in;
        mark over;
        bool started{};

        [[nodiscard]] posting& half(side who) noexcept { return who == side::sender ? out : in; }
        void clear() noexcept { out.posted = in.posted = out.waited = in.waited = started = false; }
    };

    [[nodiscard]] std::vector<transfer> make_ring(std::size_t room) const {
        std::vector<transfer> made;
        made.reserve(room);
        while (made.size() != room) {
            made.push_back({{.made = copies_.mark_of(side::sender)},
                            {.made = copies_.mark_of(side::receiver)},
                            copies_.mark_of(side::sender)});
        }
        return made;
    }
    [[nodiscard]] transfer& at(std::uint64_t number) { return ring_[number % ring_.size()]; }
    void grow() {
        std::vector<transfer> wider = make_ring(ring_.size() * 2);
        for (std::uint64_t n = oldest_; n != oldest_ + ring_.size(); ++n) {
            wider[n % wider.size()] = std::move(at(n));
        }
        ring_ = std::move(wider);
    }

    void start(transfer& t) {
        if (t.out.message != t.in.message || t.out.parts.size() != t.in.parts.size()) {
            throw error{"pulse: two ranks disagree about the next message between them"};
        }
        for (std::size_t i = 0; i != t.out.parts.size(); ++i) {
            if (t.out.parts[i].bytes != t.in.parts[i].bytes) {
                throw error{"pulse: two ranks disagree about the size of a message"};
            }
        }
        copies_.begin(t.out.made, t.in.made);
        std::int64_t bytes = 0;
        for (std::size_t i = 0; i != t.out.parts.size(); ++i) {
            message_part& from = t.out.parts[i];
            message_part& to = t.in.parts[i];
            const auto of_part = static_cast<std::int64_t>(from.bytes);
            if (from.may_exchange && copies_.exchanges()) {
                std::swap(from.data, to.data);
                delivered_.handed_over += of_part;
            } else {
                copies_.copy(from, to);
            }
            delivered_.of(from.kind) += of_part;
            bytes += of_part;
        }
        copies_.end(t.over, bytes);
        ++delivered_.messages;
        t.started = true;
    }

    void wait(side who, message_id message, place where, bool retire) {
        std::unique_lock lock{mutex_};
        const std::uint64_t number = find(who, message);
        for (;;) {
            failed_.throw_if_set();
            transfer& t = at(number);
            if (t.started) {
                const clock::time_point ready = copies_.over(who, t.over);
                if (ready <= clock::now()) { break; }
                changed_.wait_until(lock, ready);
            } else if (const int rank = left_[who == side::sender ? 1 : 0]; rank >= 0) {
                throw error{"pulse: rank " + std::to_string(rank) +
                            " has returned, but another rank waits for a message to or from it"};
            } else {
                changed_.wait(lock);
            }
        }
        if (!retire) { return; }
        copies_.join(at(number).over, where);
        at(number).half(who).waited = true;
        while (oldest_ != next_send_ && oldest_ != next_recv_ && at(oldest_).out.waited && at(oldest_).in.waited) {
            at(oldest_).clear();
            ++oldest_;
        }
    }

    [[nodiscard]] std::uint64_t find(side who, message_id message) {
        const std::uint64_t end = who == side::sender ? next_send_ : next_recv_;
        for (std::uint64_t n = oldest_; n != end; ++n) {
            const posting& mine = at(n).half(who);
            if (mine.posted && !mine.waited && mine.message == message) { return n; }
        }
        throw error{"pulse: a rank waits for a message that it never posted"};
    }

    Copies copies_;
    std::mutex mutex_{};
    std::condition_variable changed_{};
    std::vector<transfer> ring_;
    std::uint64_t oldest_{};
    std::uint64_t next_send_{};
    std::uint64_t next_recv_{};
    traffic_count delivered_{};
    failure failed_{};
    std::array<int, 2> left_{-1, -1}; ///< of each side: the rank that has returned, or -1
};

} // namespace pulse::threads
