#pragma once

#include <cstddef>
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
#include <pulse/threads/group.hpp>
#include <pulse/threads/host_copies.hpp>

namespace pulse::threads {

/// A group of thread ranks with tensors in host memory.
class thread_group : public group<host_copies> {
public:
    /// Throws input_error when ranks < 1.
    explicit thread_group(int ranks, const link_options& link = {}) : group{ranks, link} {}

    /// Called on a rank's thread when the rank begins.
    static void enter(int) {}
    /// Memory that lives as long as the group.
    [[nodiscard]] std::byte* allocate(int, std::size_t bytes) {
        const std::lock_guard lock{memory_mutex_};
        memory_.push_back(allocate_aligned(bytes));
        return memory_.back().get();
    }

private:
    std::mutex memory_mutex_{};
    std::vector<aligned_bytes> memory_{};
};

/// One rank's end of a group of threads; use it on the rank's thread. Places says where the tensors of a message are
/// made or read.
///
/// A transfer takes place when both sides have posted it. It swaps the two buffers if the sender no longer needs its
/// own, and copies otherwise.
template <class Group, class Places>
class thread_end {
public:
    /// Throws input_error when the group has no such rank.
    thread_end(std::shared_ptr<Group> of, int rank) : group_{entered(std::move(of), rank)}, rank_{rank} {}

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return group_->size(); }

    void post_send(int peer, message_id message, std::span<message_part> parts) {
        group_->between(rank_, peer).post(side::sender, message, parts, places_(message));
    }
    void post_recv(int peer, message_id message, std::span<message_part> parts) {
        group_->between(peer, rank_).post(side::receiver, message, parts, places_(message));
    }
    void wait_send(int peer, message_id message) {
        group_->between(rank_, peer).wait(side::sender, message, places_(message));
    }
    void wait_recv(int peer, message_id message) {
        group_->between(peer, rank_).wait(side::receiver, message, places_(message));
    }
    [[nodiscard]] bool arrived(int peer, message_id message) { return group_->between(peer, rank_).arrived(message); }
    /// Sums host values; the other collectives take host data too.
    void sum(std::span<double> values) { group_->sum(rank_, values); }
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) {
        return group_->gather(rank_, mine);
    }
    void broadcast(std::vector<std::byte>& bytes) { group_->broadcast(rank_, bytes); }
    void fail(std::string_view what) noexcept { group_->fail(rank_, what); }
    [[nodiscard]] std::byte* allocate(std::size_t bytes) { return group_->allocate(rank_, bytes); }

    /// Traffic of the transfers from this rank that have started.
    [[nodiscard]] traffic_count sent() {
        traffic_count all;
        for (int peer = 0; peer != size(); ++peer) { all += group_->between(rank_, peer).delivered(); }
        return all;
    }

protected:
    [[nodiscard]] const Places& places() const noexcept { return places_; }

private:
    [[nodiscard]] static std::shared_ptr<Group> entered(std::shared_ptr<Group> of, int rank) {
        if (rank < 0 || rank >= of->size()) {
            throw input_error{"pulse: there is no rank " + std::to_string(rank) + " in a group of " +
                              std::to_string(of->size())};
        }
        of->enter(rank);
        return of;
    }

    std::shared_ptr<Group> group_;
    int rank_;
    Places places_{};
};

struct host_places {
    [[nodiscard]] host_copies::place operator()(const message_id&) const noexcept { return {}; }
};

/// The transport of thread ranks with tensors in host memory.
class transport : public thread_end<thread_group, host_places> {
public:
    using thread_end::thread_end;
};

static_assert(pulse::transport<transport>, "pulse: threads::transport must be a transport");

namespace detail {

/// Runs body on one rank of a group of threads and tells the others how it ended; returns what it threw.
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
        group->fail(rank, "an exception that is not a std::exception");
        return std::current_exception();
    }
}

/// run_ranks for an existing group. `start(work)` starts a thread and returns an object whose destructor joins it.
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
/// The error of the first rank that fails stops every rank and is thrown here: what its body threw, or an error with
/// the text that it gave transport.fail. A rank that returns early makes the ranks that wait for it fail.
template <class Body>
void run_ranks(int ranks, const link_options& link, Body body) {
    const auto group = std::make_shared<thread_group>(ranks, link);
    detail::run_ranks_on<transport>([](auto work) { return std::jthread{std::move(work)}; }, group, body);
}

} // namespace pulse::threads
