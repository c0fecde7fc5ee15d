#pragma once

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/event.cuh>

namespace pulse::cuda {

/// Tells when a stream reached a point, by events: the clock of a trace on a device. All events are made in advance.
class stream_clock {
public:
    /// Index of an event.
    using mark = std::uint32_t;

    /// For `marks` points of math.stream(); waits for its work, to align the device's clock with the host's.
    template <class B>
    stream_clock(B& math, std::size_t marks) : stream_{math.stream()}, origin_{timing::on} {
        events_.reserve(marks);
        for (std::size_t i = 0; i != marks; ++i) { events_.emplace_back(timing::on); }
        origin_.record(stream_);
        origin_.synchronize();
        origin_ns_ =
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
                .count();
    }

    /// Marks the point after all work now in the stream. Throws error if no event is left.
    [[nodiscard]] mark now() { return now(stream_); }
    /// The same for another stream of the device.
    [[nodiscard]] mark now(cudaStream_t on) {
        if (next_ == events_.size()) { throw error{"pulse: stream_clock has no events left"}; }
        events_[next_].record(on);
        return static_cast<mark>(next_++);
    }

    /// When the point was reached, in nanoseconds of the host's steady clock; waits for it. Exact to about a
    /// microsecond between points of one clock; between clocks, to the time that the host takes to see an event.
    [[nodiscard]] std::int64_t nanoseconds(mark m) const {
        events_[m].synchronize();
        return origin_ns_ + std::llround(1e9 * seconds_between(origin_, events_[m]));
    }

private:
    cudaStream_t stream_;
    event origin_;
    std::int64_t origin_ns_{};
    std::vector<event> events_{};
    std::size_t next_{};
};

} // namespace pulse::cuda
