#pragma once

#include <algorithm>
#include <cstdint>

#include <pulse/onednn/lanes.hpp>
#include <pulse/onednn/parallel.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::onednn {

/// Convolutions of stride 1 whose result has few channels, where oneDNN would compute sixteen.
///
/// The pixels of the wide side are read in place, all channels at once.
class narrow_convolution {
public:
    static constexpr int most_channels = 4; ///< of the narrow side

    /// Whether the result of the forward pass is narrow.
    [[nodiscard]] static constexpr bool narrows(const conv2d_shape& s) noexcept {
        return s.stride == 1 && s.out_channels <= most_channels && s.in_channels > most_channels;
    }
    /// Whether the input gradient is narrow.
    [[nodiscard]] static constexpr bool widens(const conv2d_shape& s) noexcept {
        return s.stride == 1 && s.in_channels <= most_channels && s.out_channels > most_channels &&
               s.pad_before < s.kernel && s.pad_after < s.kernel;
    }
    /// Floats of workspace.
    [[nodiscard]] static constexpr std::int64_t workspace(const conv2d_shape& s) noexcept {
        return s.weight_elements();
    }

    /// y (written or added to) of a shape that narrows; weight [out][weight_channels][ky][kx], work of `workspace`.
    static void forward(int threads, const conv2d_shape& s, int weight_channels, int batch, const float* x,
                        const float* weight, const float* bias, float* y, into how, float* work) {
        const int taps = s.kernel * s.kernel;
        for (int o = 0; o != s.out_channels; ++o) {
            for (int i = 0; i != s.in_channels; ++i) {
                for (int t = 0; t != taps; ++t) {
                    work[(std::int64_t{o} * taps + t) * s.in_channels + i] =
                        weight[(std::int64_t{o} * weight_channels + i) * taps + t];
                }
            }
        }
        contract(threads, s, batch, x, work, bias, y, how);
    }

    /// dx (written or added to) of a shape that widens: the contraction with the taps flipped.
    static void backward_input(int threads, const conv2d_shape& s, int weight_channels, int batch, const float* dy,
                               const float* weight, float* dx, into how, float* work) {
        const int taps = s.kernel * s.kernel;
        for (int o = 0; o != s.out_channels; ++o) {
            for (int i = 0; i != s.in_channels; ++i) {
                for (int t = 0; t != taps; ++t) {
                    work[(std::int64_t{i} * taps + (taps - 1 - t)) * s.out_channels + o] =
                        weight[(std::int64_t{o} * weight_channels + i) * taps + t];
                }
            }
        }
        const conv2d_shape turned{s.out_channels,
                                  s.in_channels,
                                  s.out_height(),
                                  s.out_width(),
                                  s.kernel,
                                  1,
                                  s.kernel - 1 - s.pad_before,
                                  s.kernel - 1 - s.pad_after};
        contract(threads, turned, batch, dy, work, nullptr, dx, how);
    }

    /// Writes or adds to dweight [out][weight_channels][ky][kx] of a shape that narrows; each sample is summed
    /// separately.
    static void backward_weight(int threads, const conv2d_shape& s, int weight_channels, int batch, const float* x,
                                const float* dy, gradient_place<float> dweight) {
        const int taps = s.kernel * s.kernel;
        parallel_for(threads, std::int64_t{s.out_channels} * taps, [&](int, std::int64_t at) {
            const int o = static_cast<int>(at / taps);
            const int tap = static_cast<int>(at % taps);
            for_lanes(0, s.in_channels, [&]<int W>(std::int64_t c) {
                floats<W> total{};
                for (int b = 0; b != batch; ++b) {
                    total += correlate<W>(s, x + b * s.in_elements() + c, dy + b * s.out_elements() + o,
                                          tap / s.kernel - s.pad_before, tap % s.kernel - s.pad_before);
                }
                for (int l = 0; l != W; ++l) {
                    float& to = dweight.to[(std::int64_t{o} * weight_channels + c + l) * taps + tap];
                    to = dweight.adds() ? to + total[l] : total[l];
                }
            });
        });
    }

private:
    /// y[pixel][o] = bias + the sum over taps and channels of x * weight[o][tap][channel].
    static void contract(int threads, const conv2d_shape& s, int batch, const float* x, const float* weight,
                         const float* bias, float* y, into how) {
        const std::int64_t row_step = std::int64_t{s.in_width} * s.in_channels;
        parallel_for(threads, std::int64_t{batch} * s.out_height(), [&](int, std::int64_t at) {
            const int oy = static_cast<int>(at % s.out_height());
            const int from_y = std::max(0, s.pad_before - oy);
            const int to_y = std::min(s.kernel, s.in_height + s.pad_before - oy);
            const float* const image = x + at / s.out_height() * s.in_elements();
            float* const row = y + at * s.out_width() * s.out_channels;
            for (int ox = 0; ox != s.out_width(); ++ox) {
                const int from_x = std::max(0, s.pad_before - ox);
                const int to_x = std::min(s.kernel, s.in_width + s.pad_before - ox);
                // The taps of one kernel row are contiguous in the image and in the weight.
                const std::int64_t run = std::int64_t{std::max(0, to_x - from_x)} * s.in_channels;
                for (int o = 0; o != s.out_channels; ++o) {
                    floats<widest> sums[2]{};
                    float rest = bias != nullptr ? bias[o] : 0.0F;
                    for (int ky = from_y; ky < to_y; ++ky) {
                        const float* const a = image + (oy + ky - s.pad_before) * row_step +
                                               std::int64_t{ox + from_x - s.pad_before} * s.in_channels;
                        const float* const w =
                            weight + ((std::int64_t{o} * s.kernel + ky) * s.kernel + from_x) * s.in_channels;
                        std::int64_t i = 0;
                        for (; i + 2 * widest <= run; i += 2 * widest) {
                            sums[0] += load<widest>(a + i) * load<widest>(w + i);
                            sums[1] += load<widest>(a + i + widest) * load<widest>(w + i + widest);
                        }
                        for (; i + widest <= run; i += widest) { sums[0] += load<widest>(a + i) * load<widest>(w + i); }
                        for (; i < run; ++i) { rest += a[i] * w[i]; }
                    }
                    const float sum = rest + sum_of<widest>(sums[0] + sums[1]);
                    float& target = row[std::int64_t{ox} * s.out_channels + o];
                    target = how == into::add ? target + sum : sum;
                }
            }
        });
    }

    /// The sum over the pixels of one sample of x, shifted by (down, right), times the gradient.
    template <int W>
    [[gnu::always_inline]] static floats<W> correlate(const conv2d_shape& s, const float* x, const float* gradient,
                                                      int down, int right) noexcept {
        floats<W> sums[4]{};
        const int from = std::max(0, -right);
        const int to = std::min(s.out_width(), s.in_width - right);
        for (int oy = std::max(0, -down); oy < std::min(s.out_height(), s.in_height - down); ++oy) {
            const float* const a = x + (std::int64_t{oy + down} * s.in_width + right) * s.in_channels;
            const float* const g = gradient + std::int64_t{oy} * s.out_width() * s.out_channels;
            const auto take = [&](int ox, floats<W>& sum) __attribute__((always_inline)) {
                sum += load<W>(a + std::int64_t{ox} * s.in_channels) * g[std::int64_t{ox} * s.out_channels];
            };
            int ox = from;
            for (; ox + 4 <= to; ox += 4) {
                take(ox, sums[0]);
                take(ox + 1, sums[1]);
                take(ox + 2, sums[2]);
                take(ox + 3, sums[3]);
            }
            for (; ox < to; ++ox) { take(ox, sums[0]); }
        }
        return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
};

} // namespace pulse::onednn
