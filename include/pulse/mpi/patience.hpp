#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include <pulse/launch/deadline.hpp>

namespace pulse::mpi {

/// The pause between two polls: none at first, then it yields to other threads, then it sleeps.
///
/// A wait of over 2 ms may end 0.1 ms late; in exchange, waiting ranks leave shared cores to ranks that compute.
class patience {
public:
    /// Waits for at most launch::deadline::longest, even if `seconds` are infinite.
    explicit patience(double seconds) :
        deadline_{clock::now() + std::chrono::duration_cast<clock::duration>(std::min<std::chrono::duration<double>>(
                                     std::chrono::duration<double>{seconds}, launch::deadline::longest))} {}

    /// Pauses; returns whether time is left.
    [[nodiscard]] bool rest() {
        if (++looks_ < 32) { return true; }
        const clock::time_point now = clock::now();
        if (looks_ == 32) { began_ = now; }
        if (now - began_ < std::chrono::milliseconds{2}) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::chrono::microseconds{50});
        }
        return now < deadline_;
    }

private:
    using clock = std::chrono::steady_clock;

    clock::time_point deadline_;
    clock::time_point began_{};
    int looks_{};
};

} // namespace pulse::mpi
