#pragma once

#include <csignal>
#include <stop_token>
#include <thread>
#include <pthread.h>

namespace pulse_plan {

/// Turns the first Ctrl-C into a stop request; a second one ends the program as usual.
///
/// Construct it before any other thread, so that those threads leave the signal to the waiting thread.
class stop_on_signal {
public:
    stop_on_signal() {
        sigemptyset(&signals_);
        sigaddset(&signals_, SIGINT);
        sigaddset(&signals_, SIGTERM);
        pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
        waiter_ = std::jthread{[this](const std::stop_token& ended) { wait(ended); }};
    }
    stop_on_signal(const stop_on_signal&) = delete;
    stop_on_signal& operator=(const stop_on_signal&) = delete;
    ~stop_on_signal() {
        waiter_.request_stop();
        waiter_.join();
        pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    }

    [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }

private:
    void wait(const std::stop_token& ended) {
        constexpr timespec look_again{.tv_sec = 0, .tv_nsec = 50'000'000};
        while (!ended.stop_requested()) {
            if (sigtimedwait(&signals_, nullptr, &look_again) < 0) { continue; }
            stop_.request_stop();
            pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr); // in this thread: the next signal ends the program
            return;
        }
    }

    sigset_t signals_{};
    std::stop_source stop_{};
    std::jthread waiter_{};
};

} // namespace pulse_plan
