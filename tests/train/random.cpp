#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include <pulse/train/random.hpp>

#include <support/check_both.hpp>

namespace {

using pulse::train::philox4x32;
using pulse::train::random_source;
using pulse::train::random_stream;
using words = std::array<std::uint32_t, 4>;

} // namespace

TEST_SUITE("constexpr") {

    // The known answers that the generator's authors publish with their library (kat_vectors: philox4x32 10).
    TEST_CASE("Philox4x32-10 gives its authors' known answers") {
        CHECK_BOTH(philox4x32({0, 0, 0, 0}, {0, 0}) == words{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U});
        CHECK_BOTH(philox4x32({0xffffffffU, 0xffffffffU, 0xffffffffU, 0xffffffffU}, {0xffffffffU, 0xffffffffU}) ==
                   words{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU});
        CHECK_BOTH(philox4x32({0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}, {0xa4093822U, 0x299f31d0U}) ==
                   words{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U});
    }

    TEST_CASE("numbers are constant expressions") {
        constexpr random_source source{7, random_stream::timesteps};
        CHECK_BOTH(source.below(1000, 3) < 1000U);
        CHECK_BOTH(source.uniform(3) >= 0.0 && source.uniform(3) < 1.0);
        CHECK_BOTH(source.bits(5) == random_source(7, random_stream::timesteps).bits(5));
        CHECK_BOTH(source.bits(5) != random_source(8, random_stream::timesteps).bits(5));
        CHECK_BOTH(source.bits(5) != random_source(7, random_stream::noise).bits(5));
    }

} // TEST_SUITE

TEST_CASE("the high halves of seed, stream and index all count") {
    const std::uint64_t high = std::uint64_t{1} << 40U;
    CHECK(random_source(1, 1).bits(4) != random_source(1 + high, 1).bits(4));
    CHECK(random_source(1, 1).bits(4) != random_source(1, 1 + high).bits(4));
    CHECK(random_source(1, 1).bits(4) != random_source(1, 1).bits(4 + high));
}

TEST_CASE("filling normals equals asking for each, from any start") {
    const random_source source{11, random_stream::noise};
    for (const std::uint64_t first : {0ULL, 1ULL, 2ULL, 3ULL, 5ULL, 1'000'003ULL, (1ULL << 40U) + 1}) {
        for (std::size_t size = 0; size != 12; ++size) {
            std::vector<float> block(size);
            source.fill_normal(first, block);
            for (std::size_t i = 0; i != size; ++i) { CHECK(block[i] == source.normal(first + i)); }
        }
    }
}

TEST_CASE("normals have the moments, the tails and the independence of normals") {
    constexpr std::size_t n = 400'000;
    std::vector<float> x(n);
    random_source{3, random_stream::noise}.fill_normal(0, x);
    std::array<double, 5> moments{};
    double neighbours = 0;
    std::size_t inside_one = 0;
    std::size_t beyond_three = 0;
    for (std::size_t i = 0; i != n; ++i) {
        const double v = static_cast<double>(x[i]);
        double power = 1;
        for (double& moment : moments) {
            moment += power / n;
            power *= v;
        }
        if (i != 0) { neighbours += v * static_cast<double>(x[i - 1]) / n; }
        inside_one += std::abs(v) < 1 ? 1U : 0U;
        beyond_three += std::abs(v) > 3 ? 1U : 0U;
    }
    const double root = std::sqrt(static_cast<double>(n)); // tolerances: 5 standard deviations of each estimate
    CHECK(std::abs(moments[1]) < 5 / root);
    CHECK(std::abs(moments[2] - 1) < 5 * std::sqrt(2.0) / root);
    CHECK(std::abs(moments[3]) < 5 * std::sqrt(15.0) / root);
    CHECK(std::abs(moments[4] - 3) < 5 * std::sqrt(96.0) / root);
    CHECK(std::abs(neighbours) < 5 / root);
    const double p_one = std::erf(1 / std::numbers::sqrt2);
    CHECK(std::abs(static_cast<double>(inside_one) / n - p_one) < 5 * std::sqrt(p_one * (1 - p_one)) / root);
    const double p_three = 1 - std::erf(3 / std::numbers::sqrt2);
    CHECK(std::abs(static_cast<double>(beyond_three) / n - p_three) < 5 * std::sqrt(p_three) / root);
}

TEST_CASE("streams and seeds are uncorrelated") {
    constexpr std::size_t n = 100'000;
    std::vector<float> a(n);
    std::vector<float> b(n);
    random_source{3, random_stream::noise}.fill_normal(0, a);
    for (const auto other : {random_source{4, random_stream::noise}, random_source{3, random_stream::sample_start}}) {
        other.fill_normal(0, b);
        double product = 0;
        for (std::size_t i = 0; i != n; ++i) { product += static_cast<double>(a[i]) * static_cast<double>(b[i]) / n; }
        CHECK(std::abs(product) < 5 / std::sqrt(static_cast<double>(n)));
    }
}

TEST_CASE("below() reaches every value equally often") {
    for (const std::uint32_t count : {1U, 2U, 7U, 1000U}) {
        const random_source source{count, random_stream::timesteps};
        constexpr std::uint32_t per_value = 400;
        std::vector<double> hits(count);
        for (std::uint64_t i = 0; i != std::uint64_t{count} * per_value; ++i) {
            const std::uint32_t value = source.below(count, i);
            REQUIRE(value < count);
            hits[value] += 1;
        }
        double chi_squared = 0;
        for (const double h : hits) { chi_squared += (h - per_value) * (h - per_value) / per_value; }
        const double freedom = count - 1.0;
        CHECK(std::abs(chi_squared - freedom) <= 5 * std::sqrt(2 * freedom));
    }
    // All 64 random bits are scaled, not only the low half.
    const random_source source{1, 1};
    for (std::uint64_t i = 0; i != 200; ++i) {
        CHECK(source.below(0xFFFFFFFFU, i) >= static_cast<std::uint32_t>(source.bits(i) >> 32U) - 1U);
        CHECK(std::abs(source.uniform(i) - static_cast<double>(source.below(1U << 31U, i)) * 0x1p-31) < 0x1p-30);
    }
}
