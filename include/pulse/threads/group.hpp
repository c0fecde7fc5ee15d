#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/runtime/transport.hpp>
#include <pulse/threads/channel.hpp>
#include <pulse/threads/collectives.hpp>

namespace pulse::threads {

/// Ranks that are threads of one process: a channel for each direction of each pair, and collectives.
template <class Copies>
class group {
public:
    /// Every channel's Copies is made from `how`, the sender and the receiver. Throws input_error when ranks < 1.
    template <class How>
    group(int ranks, const How& how) : ranks_{at_least_one(ranks)}, collectives_{ranks} {
        for (int from = 0; from != ranks; ++from) {
            for (int to = 0; to != ranks; ++to) { channels_.emplace_back(how, from, to); }
        }
    }

    [[nodiscard]] int size() const noexcept { return ranks_; }
    /// Throws input_error when there is no such pair of ranks.
    [[nodiscard]] channel<Copies>& between(int from, int to) {
        if (from < 0 || to < 0 || from >= ranks_ || to >= ranks_) {
            throw input_error{"pulse: there is no link from rank " + std::to_string(from) + " to rank " +
                              std::to_string(to)};
        }
        return channels_[static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) +
                         static_cast<std::size_t>(to)];
    }

    /// Makes every post, wait and collective of every rank throw peer_failed with the text of the first failure.
    void fail(int rank, std::string_view what) noexcept {
        const std::string_view first = collectives_.fail(rank, what);
        for (channel<Copies>& c : channels_) { c.fail(first); }
    }
    /// The rank that failed first, or -1, and its text.
    [[nodiscard]] std::pair<int, std::string> first_failure() { return collectives_.first_failure(); }

    /// The rank takes no further part: ranks that wait for what it has not posted get an error that names it.
    void leave(int rank) {
        collectives_.leave(rank);
        for (int other = 0; other != ranks_; ++other) {
            between(rank, other).leave(side::sender, rank);
            between(other, rank).leave(side::receiver, rank);
        }
    }

    /// Sums as the transport concept requires. Throws error, and fails the group, when the ranks call different
    /// operations or with different numbers of values, or when one has left.
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

private:
    [[nodiscard]] static int at_least_one(int ranks) {
        if (ranks < 1) { throw input_error{"pulse: a group must have at least 1 rank, not " + std::to_string(ranks)}; }
        return ranks;
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
    std::deque<channel<Copies>> channels_{}; // a deque: channels cannot move
    collectives collectives_;
};

} // namespace pulse::threads
