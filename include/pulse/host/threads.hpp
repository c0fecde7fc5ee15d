#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/host/channel.hpp>
#include <pulse/runtime/transport.hpp>
#include <pulse/tensor/aligned_bytes.hpp>

namespace pulse::host {

/// Ranks that are threads of one process, and what they share.
class thread_group {
public:
    explicit thread_group(int ranks, link_options link = {})
        : ranks_{ranks}, link_{link}, channels_(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks)),
          sums_(static_cast<std::size_t>(ranks)) {}

    [[nodiscard]] int size() const noexcept { return ranks_; }
    [[nodiscard]] const link_options& link() const noexcept { return link_; }
    [[nodiscard]] channel& between(int from, int to) {
        return channels_[static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(to)];
    }

    /// The first failure wins; every wait of every rank then throws peer_failed with its text.
    void fail(std::string_view what) {
        std::string first;
        {
            const std::lock_guard lock{sum_mutex_};
            if (failure_.empty()) { failure_ = what.empty() ? "a rank failed" : std::string{what}; }
            first = failure_;
        }
        sum_changed_.notify_all();
        for (auto& c : channels_) { c.fail(first); }
    }

    void sum(int rank, std::span<double> values) {
        std::unique_lock lock{sum_mutex_};
        if (!failure_.empty()) { throw peer_failed{failure_}; }
        sums_[static_cast<std::size_t>(rank)] = values;
        const std::uint64_t round = sum_round_;
        if (++sum_arrived_ == ranks_) {
            add_in_rank_order();
            sum_arrived_ = 0;
            ++sum_round_;
            sum_changed_.notify_all();
            return;
        }
        sum_changed_.wait(lock, [&] { return sum_round_ != round || !failure_.empty(); });
        if (sum_round_ == round) { throw peer_failed{failure_}; }
    }

    [[nodiscard]] std::byte* allocate(std::size_t bytes) {
        const std::lock_guard lock{memory_mutex_};
        memory_.push_back(allocate_aligned(bytes));
        return memory_.back().get();
    }

private:
    void add_in_rank_order() {
        for (std::size_t i = 0; i != sums_.front().size(); ++i) {
            double total = 0;
            for (const auto& part : sums_) { total += part[i]; }
            for (const auto& part : sums_) { part[i] = total; }
        }
    }

    int ranks_;
    link_options link_;
    std::vector<channel> channels_;
    std::mutex sum_mutex_;
    std::condition_variable sum_changed_;
    std::vector<std::span<double>> sums_;
    int sum_arrived_{};
    std::uint64_t sum_round_{};
    std::string failure_;
    std::mutex memory_mutex_;
    std::vector<aligned_bytes> memory_;
};

/// One rank's end of a thread_group: the transport of the embedded default.
///
/// A transfer happens when both sides have posted it. It exchanges the two buffers when the sender does not need its own
/// any more, and copies otherwise.
class thread_transport {
public:
    thread_transport(std::shared_ptr<thread_group> group, int rank) : group_{std::move(group)}, rank_{rank} {}

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return group_->size(); }

    void post_send(int peer, message_id message, std::span<message_part> parts) {
        group_->between(rank_, peer).post(side::sender, message, parts, group_->link());
    }
    void post_recv(int peer, message_id message, std::span<message_part> parts) {
        group_->between(peer, rank_).post(side::receiver, message, parts, group_->link());
    }
    void wait_send(int peer, message_id message) { group_->between(rank_, peer).wait(side::sender, message); }
    void wait_recv(int peer, message_id message) { group_->between(peer, rank_).wait(side::receiver, message); }
    void sum(std::span<double> values) { group_->sum(rank_, values); }
    void fail(std::string_view what) { group_->fail(what); }
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

/// Runs body(transport) on one thread per rank and waits for all; the first error stops every rank and is thrown here.
template <class Body>
void run_ranks(int ranks, const link_options& link, Body body) {
    const auto group = std::make_shared<thread_group>(ranks, link);
    std::mutex first_mutex;
    std::exception_ptr first;
    {
        std::vector<std::jthread> threads;
        threads.reserve(static_cast<std::size_t>(ranks));
        for (int rank = 0; rank != ranks; ++rank) {
            threads.emplace_back([&, rank] {
                thread_transport end{group, rank};
                const auto keep = [&](std::string_view what, bool own) {
                    const std::lock_guard lock{first_mutex};
                    if (own && !first) { first = std::current_exception(); }
                    group->fail(what);
                };
                try {
                    body(end);
                } catch (const peer_failed& e) {
                    keep(e.what(), false);
                } catch (const std::exception& e) {
                    keep(e.what(), true);
                } catch (...) {
                    keep("an exception that is no std::exception", true);
                }
            });
        }
    }
    if (first) { std::rethrow_exception(first); }
}

} // namespace pulse::host
