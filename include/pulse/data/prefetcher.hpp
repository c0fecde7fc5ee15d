#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>

namespace pulse::data {

struct prefetch_options {
    int threads = 2;
    int ahead = 8; ///< maximum number of values that wait for next() or are being made
};

/// Threads call make(0), make(1), ... before the values are asked for, never with more than `ahead` of them at once.
///
/// next() returns the values in this order whatever the number of threads; what a call of make throws, next() rethrows
/// in its place. Several threads call `make`. The destructor waits for calls that are running.
template <class Value>
class prefetcher {
public:
    /// Throws input_error unless both options are at least 1.
    explicit prefetcher(std::function<Value(std::uint64_t)> make, const prefetch_options& options = {}) :
        make_{std::move(make)} {
        if (options.threads < 1 || options.ahead < 1) {
            throw input_error("prefetcher: threads and ahead must be at least 1");
        }
        slots_.resize(static_cast<std::size_t>(options.ahead));
        for (int i = 0; i != options.threads; ++i) {
            threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
        }
    }
    prefetcher(const prefetcher&) = delete;
    prefetcher& operator=(const prefetcher&) = delete;
    // All threads are asked to stop first; the members' own destructors then join them one by one.
    ~prefetcher() {
        for (std::jthread& thread : threads_) { thread.request_stop(); }
    }

    /// The next value. Only one thread may call it.
    [[nodiscard]] Value next() {
        slot taken;
        {
            std::unique_lock lock{mutex_};
            slot& waited = slots_[static_cast<std::size_t>(given_ % slots_.size())];
            changed_.wait(lock, [&] { return waited.value || waited.fault; });
            std::swap(taken, waited);
            ++given_;
        }
        changed_.notify_all();
        if (taken.fault) { std::rethrow_exception(taken.fault); }
        return std::move(*taken.value);
    }

private:
    struct slot {
        std::optional<Value> value{};
        std::exception_ptr fault{};
    };

    void work(const std::stop_token& stop) {
        std::unique_lock lock{mutex_};
        while (changed_.wait(lock, stop, [&] { return begun_ - given_ < slots_.size(); })) {
            if (stop.stop_requested()) { return; }
            const std::uint64_t n = begun_++;
            lock.unlock();
            slot made;
            try {
                made.value = make_(n);
            } catch (...) { made.fault = std::current_exception(); }
            lock.lock();
            slots_[static_cast<std::size_t>(n % slots_.size())] = std::move(made);
            changed_.notify_all();
        }
    }

    std::function<Value(std::uint64_t)> make_;
    std::mutex mutex_{};
    std::condition_variable_any changed_{};
    std::vector<slot> slots_{};
    std::uint64_t begun_{}; ///< values that a thread is making or has made
    std::uint64_t given_{}; ///< values that next() has returned
    std::vector<std::jthread> threads_{};
};

} // namespace pulse::data
