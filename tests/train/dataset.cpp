#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/train/dataset.hpp>

#include <support/check_both.hpp>

namespace {

using namespace pulse::train;

std::vector<std::uint8_t> pixels(std::size_t count) {
    std::vector<std::uint8_t> bytes(count);
    for (std::size_t i = 0; i != count; ++i) {
        bytes[i] = static_cast<std::uint8_t>(random_source{1, 1}.below(256, i));
    }
    return bytes;
}

constexpr bool is_permutation(std::uint64_t seed, std::uint64_t epoch, std::uint32_t count) {
    std::vector<char> seen(count, 0); // clang 14 has no constexpr vector<bool>
    for (std::uint32_t i = 0; i != count; ++i) {
        const std::uint32_t index = shuffled_index(seed, epoch, i, count);
        if (index >= count || seen[index] != 0) { return false; }
        seen[index] = 1;
    }
    return true;
}

} // namespace

TEST_SUITE("constexpr") {

    TEST_CASE("a small order is a permutation in a constant expression") {
        CHECK_BOTH(is_permutation(1, 0, 1));
        CHECK_BOTH(is_permutation(1, 0, 23));
    }

} // TEST_SUITE

TEST_CASE("every epoch's order is a permutation of its own") {
    for (const std::uint32_t count : {1U, 2U, 3U, 4U, 5U, 15U, 16U, 17U, 100U, 1000U, 4097U, 60000U}) {
        for (const std::uint64_t epoch : {0ULL, 1ULL, 12345678901ULL}) { CHECK(is_permutation(42, epoch, count)); }
    }
    for (const std::uint64_t seed : {0ULL, 1ULL, 1ULL << 40U}) {
        std::size_t same = 0;
        std::size_t same_seed = 0;
        for (std::uint32_t i = 0; i != 1000; ++i) {
            same += shuffled_index(seed, 0, i, 1000) == shuffled_index(seed, 1, i, 1000) ? 1U : 0U;
            same_seed += shuffled_index(seed, 0, i, 1000) == shuffled_index(seed + 1, 0, i, 1000) ? 1U : 0U;
        }
        CHECK(same < 12); // 1 is expected of independent orders
        CHECK(same_seed < 12);
    }
}

TEST_CASE("an order is shuffled well: positions and neighbours are uncorrelated") {
    const std::uint32_t n = 10'000;
    double with_position = 0;
    double with_neighbour = 0;
    const auto centred = [&](std::uint32_t value) { return (value - (n - 1) / 2.0) / (n / std::sqrt(12.0)); };
    for (std::uint32_t i = 0; i + 1 != n; ++i) {
        const double here = centred(shuffled_index(3, 0, i, n));
        with_position += here * centred(i) / n;
        with_neighbour += here * centred(shuffled_index(3, 0, i + 1, n)) / n;
    }
    CHECK(std::abs(with_position) < 0.05);
    CHECK(std::abs(with_neighbour) < 0.05);
}

TEST_CASE("a batch is its positions' images, across the end of an epoch too") {
    const auto bytes = pixels(7 * 3 * 4 * 2);
    for (const bool flip : {false, true}) {
        const image_dataset set{3, 4, 2, bytes, {.seed = 5, .horizontal_flip = flip, .padding = 1}};
        REQUIRE(set.size() == 7);
        CHECK(set.height() == 5);
        CHECK(set.width() == 6);
        REQUIRE(set.elements() == 60);
        std::vector<float> batch(set.elements() * 20);
        set.batch(3, batch);
        for (std::uint64_t b = 0; b != 20; ++b) {
            const std::size_t index = set.index_at(3 + b);
            const bool mirrored = set.flipped_at(3 + b);
            for (int y = 0; y != 5; ++y) {
                for (int x = 0; x != 6; ++x) {
                    for (int c = 0; c != 2; ++c) {
                        const float got = batch[b * 60 + static_cast<std::size_t>((y * 6 + x) * 2 + c)];
                        if (y == 0 || y == 4 || x == 0 || x == 5) {
                            CHECK(got == -1.0F);
                            continue;
                        }
                        const int column = mirrored ? 4 - x : x - 1;
                        const double stored =
                            bytes[index * 24 + static_cast<std::size_t>(((y - 1) * 4 + column) * 2 + c)];
                        CHECK(static_cast<double>(got) == doctest::Approx(stored / 255.0 * 2 - 1).epsilon(1e-6));
                    }
                }
            }
        }
    }
}

TEST_CASE("each epoch delivers every image once; flips happen half of the time and not for the same images") {
    const image_dataset set{2, 2, 1, pixels(500 * 4), {.seed = 8, .horizontal_flip = true}};
    int flips = 0;
    int repeated = 0;
    int moved = 0;
    for (std::uint64_t epoch = 0; epoch != 4; ++epoch) {
        std::set<std::uint32_t> seen;
        for (std::uint64_t i = 0; i != 500; ++i) {
            seen.insert(set.index_at(epoch * 500 + i));
            moved += set.index_at(epoch * 500 + i) != set.index_at((epoch + 1) * 500 + i) ? 1 : 0;
            flips += set.flipped_at(epoch * 500 + i) ? 1 : 0;
            repeated += set.flipped_at(epoch * 500 + i) == set.flipped_at((epoch + 1) * 500 + i) ? 1 : 0;
        }
        CHECK(seen.size() == 500);
    }
    CHECK(moved > 1900); // about 4 of 2000 stay in place by chance
    CHECK(std::abs(flips - 1000) < 5 * 23);
    CHECK(std::abs(repeated - 1000) < 5 * 23);
}

TEST_CASE("labels follow their images; without shuffling the order is the file's") {
    std::vector<std::uint8_t> bytes;
    std::vector<std::uint8_t> labels;
    for (std::uint8_t i = 0; i != 50; ++i) {
        bytes.push_back(i);
        labels.push_back(static_cast<std::uint8_t>(100 + i));
    }
    const image_dataset shuffled{1, 1, 1, bytes, {.seed = 2}, labels};
    const image_dataset plain{1, 1, 1, bytes, {.shuffle = false}, labels};
    for (std::uint64_t p = 0; p != 120; ++p) {
        CHECK(shuffled.labels()[shuffled.index_at(p)] == 100 + shuffled.index_at(p));
        CHECK(plain.index_at(p) == p % 50);
    }
}

TEST_CASE("a shrunk set is the means of squares, at the same positions") {
    constexpr int channels = 2;
    const auto bytes = pixels(7 * 4 * 6 * channels);
    const std::vector<std::uint8_t> labels{3, 1, 4, 1, 5, 9, 2};
    const image_dataset set{4, 6, channels, bytes, {.seed = 5, .horizontal_flip = true, .padding = 2}, labels};
    const image_dataset small = shrunk(set, 2);
    REQUIRE(small.size() == set.size());
    REQUIRE(small.height() == 4);
    REQUIRE(small.width() == 5);
    REQUIRE(small.channels() == channels);
    CHECK(std::ranges::equal(small.labels(), labels));
    CHECK(small.options().padding == 1);
    std::vector<float> large_image(set.elements());
    std::vector<float> image(small.elements());
    for (std::uint64_t position = 0; position != 20; ++position) {
        CHECK(small.index_at(position) == set.index_at(position));
        CHECK(small.flipped_at(position) == set.flipped_at(position));
        set.batch(position, large_image);
        small.batch(position, image);
        for (std::size_t e = 0; e != image.size(); ++e) {
            const std::size_t row = e / channels / 5;
            const std::size_t column = e / channels % 5;
            double mean = 0;
            for (std::size_t y = 2 * row; y != 2 * row + 2; ++y) {
                for (std::size_t x = 2 * column; x != 2 * column + 2; ++x) {
                    mean += static_cast<double>(large_image[(y * 10 + x) * channels + e % channels]) / 4;
                }
            }
            // half a step of 8-bit rounding
            CHECK(std::abs(static_cast<double>(image[e]) - mean) <= 0.5 / 127.5 + 1e-6);
        }
    }
    const image_dataset whole = shrunk({1, 3, 1, {0, 0, 1, 9, 9, 8}, {.shuffle = false}}, 1);
    CHECK(std::equal(whole.pixels().begin(), whole.pixels().end(), std::vector{0, 0, 1, 9, 9, 8}.begin()));
    // the means are 0.5 and 8.75
    const image_dataset rounded = shrunk({2, 2, 1, {1, 0, 1, 0, 9, 9, 9, 8}}, 2);
    CHECK(std::vector(rounded.pixels().begin(), rounded.pixels().end()) == std::vector<std::uint8_t>{1, 9});
    CHECK(rounded.labels().empty());
    CHECK_THROWS_WITH_AS(
        static_cast<void>(shrunk(set, 4)),
        "data set: images of 4x6 pixels and their padding of 2 must be multiples of the factor to shrink by, 4",
        pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(shrunk(set, 3)), pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(shrunk({2, 2, 1, pixels(8), {.padding = 1}}, 2)), pulse::input_error);
    for (const int times : {0, -2}) { CHECK_THROWS_AS(static_cast<void>(shrunk(set, times)), pulse::input_error); }
}

TEST_CASE("sets that do not fit together are refused") {
    CHECK_THROWS_AS((image_dataset{2, 2, 1, pixels(7)}), pulse::input_error);
    CHECK_THROWS_AS((image_dataset{2, 2, 1, {}}), pulse::input_error);
    CHECK_THROWS_AS((image_dataset{0, 2, 1, pixels(8)}), pulse::input_error);
    CHECK_THROWS_AS((image_dataset{2, 2, 1, pixels(8), {.padding = -1}}), pulse::input_error);
    CHECK_THROWS_AS((image_dataset{2, 2, 1, pixels(8), {}, std::vector<std::uint8_t>(3)}), pulse::input_error);
}
