#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/tcp_store.hpp>
#include <pulse/launch/wake_up.hpp>
#include <pulse/launch/watch_links.hpp>

namespace pulse::launch {

struct watch_options {
    /// All other ranks know of a failure within this time of the rank's end or last sign of life.
    deadline::duration timeout{std::chrono::seconds{30}};
    /// The port on which rank 0 listens while the ranks connect; 0: a free one.
    std::uint16_t port{0};
};

/// Tells every rank when one of them fails: one thread per rank, and a connection from each to rank 0.
///
/// Within the timeout, every rank learns the name of a rank whose process ends or is killed (its connection ends
/// without a goodbye), that is silent (stopped, or its machine is gone), or that reports its own failure. The first
/// failure stays. A rank that leaves with a goodbye has not failed; rank 0 stays until the others have left, at most
/// for the timeout.
class watch {
public:
    /// Collective, after the rendezvous. Throws launch_error on every rank, naming the missing ranks, when one does not
    /// connect within the timeout.
    watch(tcp_store& store, const rank_identity& who, const rank_table& table, const watch_options& options = {}) :
        watch{detail::link_with_rank_0(store, who, table, "watch", options.port, options.timeout), who, table,
              options} {}
    /// Uses existing connections: to all others on rank 0, to rank 0 elsewhere.
    watch(std::vector<detail::rank_link> links, const rank_identity& who, rank_table table,
          const watch_options& options) :
        rank_{who.rank},
        table_{std::move(table)}, timeout_{std::min(options.timeout, deadline::longest)},
        unwinding_{std::uncaught_exceptions()} {
        for (detail::rank_link& l : links) { links_.push_back({l.rank, std::move(l.stream), clock::now()}); }
        thread_ = std::thread{[this] { serve(); }};
    }
    watch(const watch&) = delete;
    watch& operator=(const watch&) = delete;
    /// Says goodbye, or reports that this rank has failed if an exception leaves the scope.
    ~watch() {
        if (std::uncaught_exceptions() != unwinding_) { fail(table_.name_of(rank_) + " was ended by an exception"); }
        close();
    }

    /// Whether a rank has failed. Takes no lock.
    [[nodiscard]] bool failed() const noexcept { return report_.load(std::memory_order_acquire) != nullptr; }
    /// Waits up to `longest` for failed(): a local error may be the effect of another rank's failure that is reported
    /// only a moment later.
    bool failed_within(deadline::duration longest) const noexcept {
        const deadline until{longest};
        while (!failed() && !until.passed()) { std::this_thread::sleep_for(std::chrono::milliseconds{1}); }
        return failed();
    }
    /// Text of the first failure: which rank and why. Takes no lock.
    [[nodiscard]] std::optional<std::string> failure() const {
        const report* const first = report_.load(std::memory_order_acquire);
        return first == nullptr ? std::nullopt : std::optional{first->text};
    }
    /// The rank that failed first, or -1. Takes no lock.
    [[nodiscard]] int failed_rank() const noexcept {
        const report* const first = report_.load(std::memory_order_acquire);
        return first == nullptr ? -1 : first->rank;
    }
    /// Throws launch_error with that text when a rank has failed.
    void check() const {
        if (const report* const first = report_.load(std::memory_order_acquire)) {
            throw launch_error{"pulse: " + first->text};
        }
    }

    /// Reports to all others that this rank has failed. Returns when the text has left this machine, or after a second.
    void fail(std::string_view text) noexcept {
        try {
            publish(rank_, text);
            std::unique_lock lock{mutex_};
            to_tell_ = true;
            wake_.signal();
            told_.wait_for(lock, std::chrono::seconds{1}, [&] { return !to_tell_ || ended_; });
        } catch (...) { // without memory or locks, the end of the connection tells the others
        }
    }
    /// Says goodbye and ends the watch. Rank 0 waits for the others' goodbyes, at most for the timeout.
    void close() noexcept;

private:
    using clock = deadline::clock;
    enum class word : std::uint64_t { alive, failed, goodbye };

    struct report {
        int rank{};
        std::string text{};
    };
    struct peer {
        int rank{};
        detail::frame_stream stream{};
        clock::time_point heard{};
        bool left{};
    };

    /// Records the failure unless there is one already.
    void publish(int rank, std::string_view text) noexcept;

    void serve() noexcept;

    void run();

    [[nodiscard]] bool links_left() const {
        return std::all_of(links_.begin(), links_.end(), [](const peer& p) { return p.left; });
    }

    void wait_for_events(clock::time_point next_beat, const std::optional<deadline>& end);

    void listen(peer& p, clock::time_point now, deadline::duration silence);

    void found(int rank, const std::string& what);
    /// On rank 0: makes it tell every rank, once.
    void broadcast();
    void tell();

    void say(peer& p, word what);

    /// Sends what is still to be told and, unless this is rank 0 after a failure, goodbye.
    void leave();

    int rank_;
    rank_table table_;
    deadline::duration timeout_;
    int unwinding_;
    std::vector<peer> links_{};
    detail::wake_up wake_{};
    std::atomic<const report*> report_{nullptr};
    std::atomic<bool> closing_{false};
    std::mutex mutex_{};
    std::condition_variable told_{};
    std::unique_ptr<const report> owned_{};
    bool to_tell_{};
    bool to_tell_everyone_{};
    bool told_everyone_{};
    bool ended_{};
    std::thread thread_{};
};

} // namespace pulse::launch

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/watch.ipp> // IWYU pragma: keep
#endif
