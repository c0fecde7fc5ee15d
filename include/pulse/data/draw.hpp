#pragma once

#include <cstdint>

#include <pulse/train/dataset.hpp>
#include <pulse/train/random.hpp>

namespace pulse::data {

/// All random draws of one sample, as a pure function of (seed, position): independent of rank, thread and history.
struct sample_draw {
    bool flip{};          ///< with probability 1/2
    double caption{};     ///< in [0, 1): the caption is dropped below the dropout's probability
    std::uint32_t top{};  ///< random crop: 2^32 times the share of the spare height that is above it
    std::uint32_t left{}; ///< random crop: 2^32 times the share of the spare width that is left of it
    std::uint64_t tags{}; ///< seed of the order of its caption's tags

    [[nodiscard]] constexpr bool operator==(const sample_draw&) const = default;
};

/// The draws of the sample at a global position.
[[nodiscard]] constexpr sample_draw draw_at(std::uint64_t seed, std::uint64_t position) noexcept {
    using train::random_source;
    using train::random_stream;
    const std::uint64_t crop = random_source{seed, random_stream::crop}.bits(position);
    return {.flip = random_source{seed, random_stream::flip}.below(2, position) == 1U,
            .caption = random_source{seed, random_stream::caption}.uniform(position),
            .top = static_cast<std::uint32_t>(crop >> 32U),
            .left = static_cast<std::uint32_t>(crop),
            .tags = random_source{seed, random_stream::tags}.bits(position)};
}

/// Which of `count` pictures is at a global position, 1 <= count < 2^32: each epoch of `count` positions is a
/// permutation of its own. With `after`, the picture that many places later in the epoch's order, wrapping around: a
/// replacement for one that cannot be read.
[[nodiscard]] constexpr std::uint32_t index_at(std::uint64_t seed, std::uint64_t position, std::uint32_t count,
                                               bool shuffle, std::uint32_t after = 0) noexcept {
    const auto within = static_cast<std::uint32_t>((position % count + after) % count);
    return shuffle ? train::shuffled_index(seed, position / count, within, count) : within;
}

} // namespace pulse::data
