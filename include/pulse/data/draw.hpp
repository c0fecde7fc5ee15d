#pragma once

#include <cstdint>

#include <pulse/train/dataset.hpp>
#include <pulse/train/random.hpp>

namespace pulse::data {

/// All chance of one sample, as a pure function of (seed, position): neither rank, thread nor what came before matters.
struct sample_draw {
    bool flip{};          ///< with probability 1/2
    double caption{};     ///< in [0, 1): the caption is dropped below the dropout's probability
    std::uint32_t top{};  ///< of a random crop: 2^32 times the share of the room above
    std::uint32_t left{}; ///< of a random crop: 2^32 times the share of the room at the left
    std::uint64_t tags{}; ///< the seed of the order of its caption's tags

    [[nodiscard]] constexpr bool operator==(const sample_draw&) const = default;
};

/// The chance of the sample at a global position.
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

/// Which of `count` pictures stands at a global position, 1 <= count < 2^32: each epoch of `count` positions is a
/// permutation of its own. `after` pictures later in that epoch's order, from whose end it goes on at its beginning,
/// stands what takes the place of a picture that cannot be read.
[[nodiscard]] constexpr std::uint32_t index_at(std::uint64_t seed, std::uint64_t position, std::uint32_t count,
                                               bool shuffle, std::uint32_t after = 0) noexcept {
    const auto within = static_cast<std::uint32_t>((position % count + after) % count);
    return shuffle ? train::shuffled_index(seed, position / count, within, count) : within;
}

} // namespace pulse::data
