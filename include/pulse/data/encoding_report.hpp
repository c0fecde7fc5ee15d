#pragma once

#include <cstdint>

namespace pulse::data {

/// How much one encoding run wrote, and how long it took.
struct encoding_report {
    std::uint64_t pictures{}; ///< encoded by this run
    std::uint64_t captions{};
    std::uint64_t bytes{}; ///< written by this run
    double picture_seconds{};
    double caption_seconds{};

    /// Seconds that encoding before each step would take for `samples` samples in all (of a run), at the same speed.
    [[nodiscard]] double each_step_seconds(std::uint64_t samples) const noexcept {
        const auto of_one = [](double seconds, std::uint64_t count) {
            return count == 0 ? 0.0 : seconds / static_cast<double>(count);
        };
        return static_cast<double>(samples) * (of_one(picture_seconds, pictures) + of_one(caption_seconds, captions));
    }
};

} // namespace pulse::data
