#pragma once

#include <array>
#include <random>
#include <vector>

#include <pulse/runtime/backend.hpp>

/// Shapes that tests on a device compute. tests/cudnn asks cuDNN for engines of the same shapes, so they are drawn
/// separately from the values.
namespace pulse::test {

/// A convolution, and the pair of its two parts: the last `second` channels and those before.
struct drawn_convolution {
    conv2d_shape shape{};
    int batch{};
    int second{};
    bool adds{};
    bool biased{};
    int offset{}; ///< elements between an aligned address and the start of tensors
};

/// How many rounds to draw, and from which seed.
struct convolution_draw {
    unsigned seed{};
    int rounds{};
};
inline constexpr convolution_draw bf16_convolutions{11, 12};
inline constexpr convolution_draw fp16_convolutions{12, 12};
inline constexpr convolution_draw tf32_convolutions{13, 8};
inline constexpr convolution_draw fp32_convolutions{14, 12};
inline constexpr convolution_draw timed_bf16_convolutions{31, 2};
inline constexpr convolution_draw timed_fp32_convolutions{32, 2};

/// Draws shapes of every kind: windows of 1 to 3, both strides, uneven padding, odd and single channels.
[[nodiscard]] inline std::vector<drawn_convolution> draw_convolutions(const convolution_draw& draw) {
    std::mt19937 engine{draw.seed};
    const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(engine); };
    constexpr std::array channels{1, 2, 3, 4, 5, 8, 16, 24};
    const auto any_channels = [&] { return channels[static_cast<std::size_t>(between(0, 7))]; };
    std::vector<drawn_convolution> made;
    for (int round = 0; round != draw.rounds; ++round) {
        conv2d_shape s{};
        s.in_channels = any_channels();
        s.out_channels = any_channels();
        s.kernel = between(1, 3);
        s.stride = between(1, 2);
        s.pad_before = between(0, s.kernel - 1);
        s.pad_after = between(0, s.kernel - 1);
        s.in_height = between(3, 7);
        s.in_width = between(3, 7);
        const int batch = between(1, 3);
        const int second = between(0, s.in_channels - 1);
        made.push_back({s, batch, second, round % 2 == 0, between(0, 2) != 0, round % 3 == 2 ? 1 : 0});
    }
    return made;
}

struct chosen_attention {
    attention_shape shape{};
    int batch{};
};
/// Attention for which cuDNN has 16-bit engines in both passes.
inline constexpr std::array cudnn_attentions{chosen_attention{{33, 2, 64, 70}, 2}, chosen_attention{{16, 1, 88}, 1},
                                             chosen_attention{{33, 2, 64, 70}, 1}};

} // namespace pulse::test
