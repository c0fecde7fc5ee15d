#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>

namespace pulse::train {

/// Philox4x32-10: four random words from a 128-bit counter under a 64-bit key; stateless.
///
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                                std::array<std::uint32_t, 2> key) noexcept {
    constexpr std::uint64_t multiplier_0 = 0xD2511F53U;
    constexpr std::uint64_t multiplier_1 = 0xCD9E8D57U;
    constexpr std::uint32_t weyl_0 = 0x9E3779B9U; // golden ratio
    constexpr std::uint32_t weyl_1 = 0xBB67AE85U; // sqrt(3) - 1
    for (int round = 0; round != 10; ++round) {
        const std::uint64_t product_0 = multiplier_0 * counter[0];
        const std::uint64_t product_1 = multiplier_1 * counter[2];
        counter = {
            static_cast<std::uint32_t>(product_1 >> 32U) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product_1),
            static_cast<std::uint32_t>(product_0 >> 32U) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product_0)};
        key[0] += weyl_0;
        key[1] += weyl_1;
    }
    return counter;
}

/// Purpose of the numbers: different streams of one seed are independent sequences.
enum class random_stream : std::uint64_t {
    weights = 1,      ///< initial parameters
    order,            ///< which image is at which position
    flip,             ///< horizontal flips
    timesteps,        ///< diffusion time of each training sample
    noise,            ///< noise added to each training sample
    sample_start,     ///< first x_T of each generated image
    sample_noise,     ///< unused: keeps the values of those that follow
    synthetic_images, ///< made-up images
    synthetic_text,   ///< made-up text states
    crop,             ///< where a picture is cropped
    caption,          ///< which captions are dropped
    noise_offset,     ///< offset of the noise of a whole channel of a training sample
    posterior,        ///< latents drawn from the posterior of a training sample's picture
    synthetic_facts,  ///< made-up sizes, masks and classes
    bucket,           ///< the order of pictures in each bucket
    rounding,         ///< stochastic rounding of weights; the step is in the bits above it
    tags,             ///< the order of a caption's tags
    enlargement,      ///< noise added to the smaller image that the second backbone of a cascade reads
};

/// Random numbers by (seed, stream, index): the same on every rank, in any order, from any number of threads.
///
/// One counter value yields four words; word i of a sequence is word i mod 4 of counter i / 4.
class random_source {
public:
    constexpr random_source(std::uint64_t seed, std::uint64_t stream) noexcept :
        key_{low(seed), high(seed)}, stream_{stream} {}
    constexpr random_source(std::uint64_t seed, random_stream stream) noexcept :
        random_source{seed, static_cast<std::uint64_t>(stream)} {}

    [[nodiscard]] constexpr std::array<std::uint32_t, 4> block(std::uint64_t counter) const noexcept {
        return philox4x32({low(counter), high(counter), low(stream_), high(stream_)}, key_);
    }

    /// 64 random bits; index below 2^63.
    [[nodiscard]] constexpr std::uint64_t bits(std::uint64_t index) const noexcept {
        const auto words = block(index / 2);
        const std::size_t at = static_cast<std::size_t>(index % 2) * 2;
        return (std::uint64_t{words[at + 1]} << 32U) | words[at];
    }

    /// An integer in [0, count), count >= 1; the probability of each value is exact to within 2^-64.
    [[nodiscard]] constexpr std::uint32_t below(std::uint32_t count, std::uint64_t index) const noexcept {
        const std::uint64_t random = bits(index);
        const std::uint64_t carry = (std::uint64_t{low(random)} * count) >> 32U;
        return static_cast<std::uint32_t>((std::uint64_t{high(random)} * count + carry) >> 32U);
    }

    /// Uniform in [0, 1), 53 bits.
    [[nodiscard]] constexpr double uniform(std::uint64_t index) const noexcept {
        return static_cast<double>(bits(index) >> 11U) * 0x1p-53;
    }

    /// Standard normal number.
    [[nodiscard]] float normal(std::uint64_t index) const {
        return normals(index / 4)[static_cast<std::size_t>(index % 4)];
    }

    /// out[i] = normal(first + i); computes each counter value once.
    void fill_normal(std::uint64_t first, std::span<float> out) const {
        for (std::size_t i = 0; i < out.size();) {
            const std::uint64_t index = first + i;
            const auto four = normals(index / 4);
            for (auto lane = static_cast<std::size_t>(index % 4); lane != 4 && i != out.size(); ++lane, ++i) {
                out[i] = four[lane];
            }
        }
    }

private:
    [[nodiscard]] static constexpr std::uint32_t low(std::uint64_t x) noexcept { return static_cast<std::uint32_t>(x); }
    [[nodiscard]] static constexpr std::uint32_t high(std::uint64_t x) noexcept {
        return static_cast<std::uint32_t>(x >> 32U);
    }

    /// Both numbers of two Box-Muller pairs (1958). Largest magnitude: sqrt(2 ln 2^33), about 6.8. The radius is
    /// computed in double, since small radii would be coarse in float; float suffices for the angle.
    [[nodiscard]] std::array<float, 4> normals(std::uint64_t counter) const {
        const auto words = block(counter);
        std::array<float, 4> result{};
        for (std::size_t pair = 0; pair != 2; ++pair) {
            const double u = (static_cast<double>(words[2 * pair]) + 0.5) * 0x1p-32; // never 0
            const auto radius = static_cast<float>(std::sqrt(-2.0 * std::log(u)));
            const auto angle =
                static_cast<float>(2.0 * std::numbers::pi * 0x1p-32 * static_cast<double>(words[2 * pair + 1]));
            result[2 * pair] = radius * std::cos(angle);
            result[2 * pair + 1] = radius * std::sin(angle);
        }
        return result;
    }

    std::array<std::uint32_t, 2> key_;
    std::uint64_t stream_;
};

} // namespace pulse::train
