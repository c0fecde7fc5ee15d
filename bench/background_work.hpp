#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <stop_token>
#include <thread>
#include <utility>

namespace pulse_bench {

/// Repeats work on its own thread until this object ends it.
class background_work {
public:
    /// `once` runs the work once and returns when it is done.
    explicit background_work(std::function<void()> once) :
        thread_{[this, once = std::move(once)](const std::stop_token& stop) { run(once, stop); }} {}

    /// Ends the work after at least `least` seconds and two runs, and returns the mean seconds of a run. Throws what
    /// the work threw.
    [[nodiscard]] double seconds_of_one(double least) {
        while (!ended_ && (runs_ < 2 || since_begin() < least)) {
            std::this_thread::sleep_for(std::chrono::microseconds{200});
        }
        thread_.request_stop();
        thread_.join();
        if (thrown_) { std::rethrow_exception(thrown_); }
        return seconds_ / static_cast<double>(runs_.load());
    }

private:
    using clock = std::chrono::steady_clock;

    [[nodiscard]] double since_begin() const { return std::chrono::duration<double>(clock::now() - begin_).count(); }
    void run(const std::function<void()>& once, const std::stop_token& stop) noexcept {
        try {
            while (!stop.stop_requested()) {
                once();
                ++runs_;
                seconds_ = since_begin();
            }
        } catch (...) { thrown_ = std::current_exception(); }
        ended_ = true;
    }

    clock::time_point begin_{clock::now()};
    std::atomic<long> runs_{0};
    std::atomic<bool> ended_{false};
    double seconds_{}; ///< from the beginning to the end of the last run
    std::exception_ptr thrown_{};
    std::jthread thread_; // last: it uses the others
};

} // namespace pulse_bench
