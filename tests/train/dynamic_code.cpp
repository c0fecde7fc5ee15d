#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <pulse/train/dynamic_code.hpp>

using namespace pulse;
using namespace pulse::train;

namespace {

/// As in the authors' create_dynamic_map: the midpoints of equal parts of [0.1, 1], times powers of ten.
std::vector<double> published_codes(bool with_sign) {
    std::vector<double> all{0, 1};
    for (int i = 0; i != 7; ++i) {
        const int parts = with_sign ? 1 << i : 2 << i;
        for (int k = 0; k != parts; ++k) {
            const double low = 0.1 + 0.9 * k / parts;
            const double high = 0.1 + 0.9 * (k + 1) / parts;
            all.push_back(std::pow(10.0, i - 6) * (low + high) / 2);
            if (with_sign) { all.push_back(-all.back()); }
        }
    }
    std::sort(all.begin(), all.end());
    return all;
}

/// The code of a value in a block with scale 1.
std::uint8_t code_of(const code_map& map, float value) {
    const std::array<float, 2> block{1, value};
    std::array<std::uint8_t, 2> codes{};
    REQUIRE(encode_block(map, block, codes) == 1);
    return codes[1];
}

} // namespace

TEST_CASE("the codes of moments are the published ones, and the nearest is found") {
    std::mt19937 random{7};
    for (const bool with_sign : {true, false}) {
        CAPTURE(with_sign);
        const code_map& map = with_sign ? first_codes : second_codes;
        const std::vector<double> published = published_codes(with_sign);
        REQUIRE(published.size() == 256);
        for (std::size_t i = 0; i != 256; ++i) {
            CHECK(static_cast<double>(map.values[i]) == doctest::Approx(published[i]).epsilon(1e-6));
            CHECK(code_of(map, map.values[i]) == i);
        }
        for (int trial = 0; trial != 20000; ++trial) {
            const double size = std::pow(10.0, std::uniform_real_distribution{-9.0, 0.0}(random));
            const auto value = static_cast<float>(with_sign && trial % 2 == 0 ? -size : size);
            const float found = map.values[code_of(map, value)];
            const auto apart = [&](float code) { return std::abs(code - value); };
            const float nearest = *std::min_element(std::begin(map.values), std::end(map.values),
                                                    [&](float a, float b) { return apart(a) < apart(b); });
            // A nonzero second moment never decodes to 0.
            CHECK(apart(found) == apart(nearest == 0 && !with_sign ? map.values[1] : nearest));
        }
    }
}

TEST_CASE("what was decoded has the same codes and scale again") {
    std::mt19937 random{11};
    for (int trial = 0; trial != 2000; ++trial) {
        std::vector<float> values(1 + random() % moment_block);
        const double spread = static_cast<double>(random() % 12);
        for (float& value : values) {
            const double size = std::pow(10.0, -std::uniform_real_distribution{0.0, spread + 0.1}(random));
            value = static_cast<float>(random() % 9 == 0 ? 0.0 : random() % 2 == 0 ? size : -size);
        }
        if (trial % 5 == 0) { values.back() = -*std::max_element(values.begin(), values.end()); }
        if (trial % 50 == 0) { std::fill(values.begin(), values.end(), 0.0F); }
        const bool with_sign = trial % 2 == 0;
        if (!with_sign) {
            for (float& value : values) { value = std::abs(value); }
        }
        const code_map& map = with_sign ? first_codes : second_codes;
        std::vector<std::uint8_t> codes(values.size());
        const float scale = encode_block(map, values, codes);
        std::vector<float> decoded(values.size());
        decode_block(map, codes, scale, decoded);
        float farthest = 0;
        for (std::size_t i = 0; i != values.size(); ++i) { farthest = std::max(farthest, std::abs(values[i])); }
        CHECK(std::abs(scale) == farthest);
        // Above a tenth of the largest value, codes are at most 0.9 / 64 of it apart; only the largest may be below
        // -0.993.
        for (std::size_t i = 0; i != values.size(); ++i) {
            CHECK(std::abs(decoded[i] - values[i]) <= 0.0071F * farthest);
        }
        std::vector<std::uint8_t> again(values.size());
        CHECK(encode_block(map, decoded, again) == scale);
        CHECK(again == codes);
    }
}
