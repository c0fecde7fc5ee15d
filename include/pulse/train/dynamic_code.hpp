#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/plan/optimizer_form.hpp>

namespace pulse::train {

/// The 256 ascending values, before scaling, that an 8-bit code of a moment stands for.
struct code_map {
    float values[256]{};
};

namespace detail {

/// Seven decades below 1, each with twice as many evenly spaced values as the one below it; also 0 and 1.
[[nodiscard]] constexpr code_map dynamic_codes(bool with_sign) noexcept {
    code_map map;
    std::size_t next = with_sign ? 128 : 1; // after 0
    double unit = 1e-6;
    for (int decade = 0; decade != 7; ++decade) {
        const int count = (with_sign ? 1 : 2) << decade;
        for (int i = 0; i != count; ++i) {
            const auto value = static_cast<float>(unit * (0.1 + 0.9 * (i + 0.5) / count));
            if (with_sign) { map.values[254 - next] = -value; }
            map.values[next] = value;
            ++next;
        }
        unit *= 10;
    }
    map.values[255] = 1;
    return map;
}

/// Of positions `at` and `at` + 1, whose values enclose `value`, the nearer one; the lower on a tie. A value above 0
/// never becomes 0 where 0 is the least code: steps are divided by roots of second moments.
[[nodiscard]] constexpr std::uint8_t nearer_of(const code_map& map, int at, float value) noexcept {
    const int next = at + static_cast<int>(at < 255);
    const int nearer = at + static_cast<int>(value - map.values[at] > map.values[next] - value);
    return static_cast<std::uint8_t>(nearer + static_cast<int>(nearer == 0 && value > 0));
}

} // namespace detail

/// For the first moment: 127 values below 0, 127 between 0 and 1, 0 and 1.
inline constexpr code_map first_codes = detail::dynamic_codes(true);
/// For the second moment, which is never negative.
inline constexpr code_map second_codes = detail::dynamic_codes(false);

/// Encodes the values of one block and returns their scale: the value of largest magnitude, sign included, the first on
/// a tie. That value is encoded as 1, so encoding decoded values gives the same codes and scale again.
///
/// Source of codes and blocks: Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit optimizers via block-wise quantization"
/// (2022), where scales have no sign.
[[nodiscard]] constexpr float encode_block(const code_map& map, std::span<const float> values,
                                           std::span<std::uint8_t> codes) noexcept {
    const auto size = [](float x) { return x < 0 ? -x : x; };
    float scale = 0;
    for (const float value : values) { scale = size(value) > size(scale) ? value : scale; }
    // Binary search, one step for all values at a time, so that compilers can vectorise it.
    std::array<float, moment_block> scaled{};
    std::array<std::int32_t, moment_block> at{};
    for (std::size_t i = 0; i != values.size(); ++i) { scaled[i] = scale == 0 ? 0.0F : values[i] / scale; }
    for (int step = 128; step != 0; step /= 2) {
        for (std::size_t i = 0; i != moment_block; ++i) {
            at[i] += step * static_cast<int>(map.values[at[i] + step] <= scaled[i]);
        }
    }
    for (std::size_t i = 0; i != values.size(); ++i) { codes[i] = detail::nearer_of(map, at[i], scaled[i]); }
    return scale;
}
/// Decodes the codes of one block with its scale.
constexpr void decode_block(const code_map& map, std::span<const std::uint8_t> codes, float scale,
                            std::span<float> values) noexcept {
    for (std::size_t i = 0; i != values.size(); ++i) { values[i] = map.values[codes[i]] * scale; }
}

/// Calls visit(block, first, size) for the blocks of `elements` consecutive elements.
template <class Visit>
constexpr void for_each_moment_block(std::size_t elements, Visit&& visit) {
    constexpr std::size_t most = moment_block;
    for (std::size_t first = 0; first < elements; first += most) {
        visit(first / most, first, elements - first < most ? elements - first : most);
    }
}

} // namespace pulse::train
