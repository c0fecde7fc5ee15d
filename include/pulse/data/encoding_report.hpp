#pragma once

#include <cstdint>

namespace pulse::data {

/// What encoding took.
struct encoding_report {
    std::uint64_t pictures{}; ///< that were encoded now: what was there is not counted
    std::uint64_t captions{};
    std::uint64_t bytes{}; ///< written now
    double picture_seconds{};
    double caption_seconds{};

    /// Seconds to encode picture and caption of each of `samples` samples in every step, at the same speed.
    [[nodiscard]] double each_step_seconds(std::uint64_t samples) const noexcept {
        const auto of_one = [](double seconds, std::uint64_t count) {
            return count == 0 ? 0.0 : seconds / static_cast<double>(count);
        };
        return static_cast<double>(samples) * (of_one(picture_seconds, pictures) + of_one(caption_seconds, captions));
    }
};

} // namespace pulse::data
