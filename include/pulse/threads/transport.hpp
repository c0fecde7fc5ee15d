#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/transport.hpp>
#include <pulse/tensor/aligned_bytes.hpp>
#include <pulse/threads/channel.hpp>
#include <pulse/threads/collectives.hpp>
#include <pulse/threads/host_copies.hpp>

namespace pulse::host {

/// Ranks that are threads of one process, and what they share.
class thread_group {
public:
    /// Throws input_error when ranks < 1.
    explicit thread_group(int ranks, link_options link = {}) : ranks_{at_least_one(ranks)}, collectives_{ranks} {
        for (int pair = 0; pair != ranks * ranks; ++pair) { channels_.emplace_back(link); }
    }

    [[nodiscard]] int size() const noexcept { return ranks_; }
    /// Throws input_error when there is no such pair of ranks.
    [[nodiscard]] channel<host_copies>& between(int from, int to) {
        if (from < 0 || to < 0 || from >= ranks_ || to >= ranks_) {
            throw input_error{"pulse: there is no link from rank " + std::to_string(from) + " to rank " +
                              std::to_string(to)};
        }
        return at(from, to);
    }

    /// The first failure wins; every post, wait and collective operation of every rank then throws peer_failed with its
    /// text.
    void fail(int rank, std::string_view what) noexcept {
        const std::string_view first = collectives_.fail(rank, what);
        for (channel<host_copies>& c : channels_) { c.fail(first); }
    }
    /// The rank that failed first, or -1, and what it said.
    [[nodiscard]] std::pair<int, std::string> first_failure() { return collectives_.first_failure(); }

    /// The rank takes no further part: whoever waits for what it has not posted gets an error that names it.
    void leave(int rank) {
        collectives_.leave(rank);
        for (int other = 0; other != ranks_; ++other) {
            at(rank, other).leave(side::sender, rank);
            at(other, rank).leave(side::receiver, rank);
        }
    }

    /// As of a transport. Throws error, and fails the group, when the ranks come with different operations or numbers
    /// of values, or when one has left.
    void sum(int rank, std::span<double> values) {
        together(rank, [&] { collectives_.sum(rank, values); });
    }
    /// See sum.
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(int rank, std::span<const std::byte> mine) {
        std::vector<std::vector<std::byte>> all;
        together(rank, [&] { all = collectives_.gather(rank, mine); });
        return all;
    }
    /// See sum.
    void broadcast(int rank, std::vector<std::byte>& bytes) {
        together(rank, [&] { collectives_.broadcast(rank, bytes); });
    }

    [[nodiscard]] std::byte* allocate(std::size_t bytes) {
        const std::lock_guard lock{memory_mutex_};
        memory_.push_back(allocate_aligned(bytes));
        return memory_.back().get();
    }

private:
    [[nodiscard]] static int at_least_one(int ranks) {
        if (ranks < 1) { throw input_error{"pulse: a group has at least 1 rank, not " + std::to_string(ranks)}; }
        return ranks;
    }
    [[nodiscard]] channel<host_copies>& at(int from, int to) {
        return channels_[static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) +
                         static_cast<std::size_t>(to)];
    }
    template <class Meet>
    void together(int rank, Meet meet) {
        try {
            meet();
        } catch (const peer_failed&) { throw; } catch (const std::exception& e) {
            fail(rank, e.what());
            throw;
        }
    }

    int ranks_;
    std::deque<channel<host_copies>> channels_{}; // which stay where they are
    collectives collectives_;
    std::mutex memory_mutex_;
    std::vector<aligned_bytes> memory_;
};

/// One rank's end of a thread_group: the transport of the embedded default.
///
/// A transfer happens when both sides have posted it. It exchanges the two buffers when the sender does not need its
/// own any more, and copies otherwise.
class thread_transport {
public:
    /// Throws input_error when the group has no such rank.
    thread_transport(std::shared_ptr<thread_group> group, int rank) : group_{std::move(group)}, rank_{rank} {
        if (rank < 0 || rank >= group_->size()) {
            throw input_error{"pulse: there is no rank " + std::to_string(rank)};
        }
    }

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return group_->size(); }

    void post_send(int peer, message_id message, std::span<message_part> parts) {
        group_->between(rank_, peer).post(side::sender, message, parts);
    }
    void post_recv(int peer, message_id message, std::span<message_part> parts) {
        group_->between(peer, rank_).post(side::receiver, message, parts);
    }
    void wait_send(int peer, message_id message) { group_->between(rank_, peer).wait(side::sender, message); }
    void wait_recv(int peer, message_id message) { group_->between(peer, rank_).wait(side::receiver, message); }
    [[nodiscard]] bool arrived(int peer, message_id message) { return group_->between(peer, rank_).arrived(message); }
    void sum(std::span<double> values) { group_->sum(rank_, values); }
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) {
        return group_->gather(rank_, mine);
    }
    void broadcast(std::vector<std::byte>& bytes) { group_->broadcast(rank_, bytes); }
    void fail(std::string_view what) noexcept { group_->fail(rank_, what); }
    [[nodiscard]] std::byte* allocate(std::size_t bytes) { return group_->allocate(bytes); }

    /// What was delivered from this rank so far.
    [[nodiscard]] traffic_count sent() {
        traffic_count all;
        for (int peer = 0; peer != size(); ++peer) { all += group_->between(rank_, peer).delivered(); }
        return all;
    }

private:
    std::shared_ptr<thread_group> group_;
    int rank_;
};

static_assert(transport<thread_transport>, "thread_transport is a transport");

namespace detail {

/// Runs body on a rank of a group of threads and tells the others how it ended; returns what it threw.
template <class Transport, class Group, class Body>
[[nodiscard]] std::exception_ptr run_rank(const std::shared_ptr<Group>& group, int rank, Body& body) noexcept {
    try {
        Transport end{group, rank};
        body(end);
        group->leave(rank);
        return nullptr;
    } catch (const std::exception& e) {
        group->fail(rank, e.what());
        return std::current_exception();
    } catch (...) {
        group->fail(rank, "an exception that is no std::exception");
        return std::current_exception();
    }
}

/// run_ranks of a group on threads that `start(work)` makes, each an object whose destructor waits for its thread.
template <class Transport, class Group, class Body, class Start>
void run_ranks_on(Start start, const std::shared_ptr<Group>& group, Body& body) {
    const int ranks = group->size();
    std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(ranks));
    {
        std::vector<decltype(start(std::declval<void (*)()>()))> threads;
        threads.reserve(static_cast<std::size_t>(ranks));
        for (int rank = 0; rank != ranks; ++rank) {
            try {
                threads.push_back(start(
                    [&, rank] { thrown[static_cast<std::size_t>(rank)] = run_rank<Transport>(group, rank, body); }));
            } catch (...) {
                group->fail(rank, "pulse: the thread of a rank could not be started");
                throw;
            }
        }
    }
    const auto [first, what] = group->first_failure();
    if (first < 0) { return; }
    if (const auto& error_of_first = thrown[static_cast<std::size_t>(first)]) {
        std::rethrow_exception(error_of_first);
    }
    throw error{what};
}

} // namespace detail

/// Runs body(transport) on one thread per rank and waits for all.
///
/// The error of the rank that failed first stops every rank and is thrown here: what its body threw, or an error with
/// what it gave to transport.fail. A rank that returns early makes the ranks that wait for it fail.
template <class Body>
void run_ranks(int ranks, const link_options& link, Body body) {
    const auto group = std::make_shared<thread_group>(ranks, link);
    detail::run_ranks_on<thread_transport>([](auto work) { return std::jthread{std::move(work)}; }, group, body);
}

} // namespace pulse::host
