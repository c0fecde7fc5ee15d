#pragma once

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
#include <pulse/threads/channel.hpp>

namespace pulse::threads {

/// Collectives of thread ranks: every rank calls the same operation, and the last to arrive performs it for all.
class collectives {
public:
    explicit collectives(int ranks) : comers_(static_cast<std::size_t>(ranks)) {}

    /// Replaces every element by its sum over the ranks, added in rank order.
    void sum(int rank, std::span<double> values) {
        meet(rank, operation::sum, {.values = values}, values.size(), [this] { add_in_rank_order(); });
    }
    /// Returns the bytes of every rank in rank order on rank 0, nothing elsewhere.
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(int rank, std::span<const std::byte> mine) {
        std::vector<std::vector<std::byte>> all;
        meet(rank, operation::gather, {.given = mine, .all = &all}, 0, [this] {
            for (const comer& c : comers_) { comers_.front().all->emplace_back(c.given.begin(), c.given.end()); }
        });
        return all;
    }
    /// Replaces the bytes of the other ranks by those of rank 0.
    void broadcast(int rank, std::vector<std::byte>& bytes) {
        meet(rank, operation::broadcast, {.bytes = &bytes}, 0, [this] {
            for (const comer& c : comers_) {
                if (c.bytes != comers_.front().bytes) { *c.bytes = *comers_.front().bytes; }
            }
        });
    }

    /// Makes every present and future meeting throw peer_failed with the text of the first failure, which is returned.
    std::string_view fail(int rank, std::string_view what) noexcept {
        {
            const std::lock_guard lock{mutex_};
            if (failed_.set(what)) { first_to_fail_ = rank; }
        }
        changed_.notify_all();
        // It is set only once, so it can be read without the mutex.
        return failed_.text();
    }
    /// The rank that failed first, or -1, and its text.
    [[nodiscard]] std::pair<int, std::string> first_failure() {
        const std::lock_guard lock{mutex_};
        return {first_to_fail_, first_to_fail_ < 0 ? std::string{} : std::string{failed_.text()}};
    }
    /// The rank takes no further part: ranks that wait for it get an error that names it.
    void leave(int rank) {
        {
            const std::lock_guard lock{mutex_};
            if (left_ < 0) { left_ = rank; }
        }
        changed_.notify_all();
    }

private:
    enum class operation : std::uint8_t { sum, gather, broadcast };
    /// What a rank brings, and where it wants the result.
    struct comer {
        std::span<double> values{};
        std::span<const std::byte> given{};
        std::vector<std::vector<std::byte>>* all{};
        std::vector<std::byte>* bytes{};
    };

    [[nodiscard]] static std::string does(operation what, std::size_t values) {
        switch (what) {
        case operation::sum: return "sums " + std::to_string(values) + " values";
        case operation::gather: return "gathers";
        case operation::broadcast: break;
        }
        return "broadcasts";
    }

    template <class Act>
    void meet(int rank, operation what, const comer& mine, std::size_t values, Act act) {
        std::unique_lock lock{mutex_};
        throw_if_incomplete();
        if (come_ != 0 && (what != operation_ || values != values_)) {
            throw error{"pulse: rank " + std::to_string(rank) + " " + does(what, values) + ", another rank " +
                        does(operation_, values_)};
        }
        operation_ = what;
        values_ = values;
        comers_[static_cast<std::size_t>(rank)] = mine;
        const std::uint64_t round = round_;
        if (++come_ == comers_.size()) {
            act();
            come_ = 0;
            ++round_;
            changed_.notify_all();
            return;
        }
        changed_.wait(lock, [&] { return round_ != round || failed_ || left_ >= 0; });
        if (round_ == round) { throw_if_incomplete(); }
    }
    void throw_if_incomplete() const {
        failed_.throw_if_set();
        if (left_ >= 0) {
            throw error{"pulse: rank " + std::to_string(left_) +
                        " has returned, but another rank waits for it in a collective operation"};
        }
    }
    void add_in_rank_order() {
        for (std::size_t i = 0; i != values_; ++i) {
            double total = 0;
            for (const comer& c : comers_) { total += c.values[i]; }
            for (const comer& c : comers_) { c.values[i] = total; }
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<comer> comers_;
    operation operation_{};
    std::size_t values_{}; ///< in the current sum
    std::size_t come_{};
    std::uint64_t round_{};
    failure failed_;
    int first_to_fail_{-1};
    int left_{-1}; ///< the first rank that returned, or -1
};

} // namespace pulse::threads
