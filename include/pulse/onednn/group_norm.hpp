#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <pulse/onednn/lanes.hpp>
#include <pulse/onednn/parallel.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::onednn {

/// GroupNorm of one sample over one or two sources, with channels along the lanes.
///
/// Sums over pixels run in float over blocks of 64 pixels and in double over blocks and over the channels of a group;
/// the variance is computed from centred values.
class group_norm_sample {
public:
    /// Doubles of workspace: two sums for each channel.
    [[nodiscard]] static std::int64_t sums(const group_norm_shape& s) noexcept {
        return std::int64_t{2} * s.all_channels();
    }
    /// Floats of workspace: four constants for each channel; the backward pass also keeps dL/du of the sample.
    [[nodiscard]] static std::int64_t constants(const group_norm_shape& s) noexcept {
        return std::int64_t{4} * s.all_channels();
    }
    [[nodiscard]] static std::int64_t gradients(const group_norm_shape& s) noexcept {
        return s.silu ? std::int64_t{s.pixels} * s.all_channels() : 0;
    }

    group_norm_sample(const group_norm_shape& s, const float* xa, const float* xb, const float* gamma,
                      const float* beta, double* sums, float* constants) noexcept :
        s_{s},
        xa_{xa}, xb_{xb}, gamma_{gamma}, beta_{beta}, sums_{sums}, constants_{constants} {}

    /// Writes y [pixels][all channels] and statistics [groups][2].
    void forward(float* y, float* statistics) const noexcept {
        measure(statistics);
        take(statistics);
        apply(y);
    }

    /// Writes statistics [groups][2].
    void measure(float* statistics) const noexcept {
        const int size = s_.all_channels() / s_.groups;
        const double count = static_cast<double>(size) * s_.pixels;
        float* const mean = constants_;
        for_each_source([&](const float* x, int width, int first) {
            for_lanes(0, width, [&]<int W>(std::int64_t c) {
                reduce<W>(sums_ + first + c, [&](int p, floats<W>& sum) { sum += load<W>(x + at(p, width, c)); });
            });
        });
        for (int g = 0; g != s_.groups; ++g) {
            double sum = 0.0;
            for (int c = g * size; c != (g + 1) * size; ++c) { sum += sums_[c]; }
            statistics[2 * g] = static_cast<float>(sum / count);
            std::fill(mean + g * size, mean + (g + 1) * size, statistics[2 * g]);
        }
        for_each_source([&](const float* x, int width, int first) {
            for_lanes(0, width, [&]<int W>(std::int64_t c) {
                const floats<W> centre = load<W>(mean + first + c);
                reduce<W>(sums_ + first + c, [&](int p, floats<W>& sum) {
                    const floats<W> d = load<W>(x + at(p, width, c)) - centre;
                    sum += d * d;
                });
            });
        });
        for (int g = 0; g != s_.groups; ++g) {
            double sum = 0.0;
            for (int c = g * size; c != (g + 1) * size; ++c) { sum += sums_[c]; }
            statistics[2 * g + 1] = static_cast<float>(1.0 / std::sqrt(sum / count + s_.epsilon));
        }
    }
    /// Computes the constants of apply from statistics [groups][2].
    void take(const float* statistics) const noexcept {
        const int all = s_.all_channels();
        const int size = all / s_.groups;
        for (int c = 0; c != all; ++c) {
            constants_[c] = statistics[2 * (c / size)];
            constants_[all + c] = statistics[2 * (c / size) + 1] * gamma_[c];
        }
    }
    /// Writes y [pixels][all channels] from the constants of take.
    void apply(float* y) const noexcept {
        const int all = s_.all_channels();
        const float* const mean = constants_;
        const float* const slope = constants_ + all;
        for_each_source([&](const float* x, int width, int first) {
            for_lanes(0, width, [&]<int W>(std::int64_t c) {
                const floats<W> m = load<W>(mean + first + c);
                const floats<W> a = load<W>(slope + first + c);
                const floats<W> b = load<W>(beta_ + first + c);
                float* const target = y + first + c;
                if (s_.silu) {
                    for (int p = 0; p != s_.pixels; ++p) {
                        const floats<W> u = (load<W>(x + at(p, width, c)) - m) * a + b;
                        store<W>(silu_of<W>(u), target + at(p, all, 0));
                    }
                } else {
                    for (int p = 0; p != s_.pixels; ++p) {
                        store<W>((load<W>(x + at(p, width, c)) - m) * a + b, target + at(p, all, 0));
                    }
                }
            });
        });
    }

    /// Writes dxa (or adds to it) and dxb; leaves the sums of dL/du and of dL/du * xhat of each channel in `sums`.
    ///
    /// du is workspace of `gradients(shape)` floats.
    void backward(const float* statistics, const float* dy, float* du, float* dxa, float* dxb,
                  into how) const noexcept {
        const int all = s_.all_channels();
        const int size = all / s_.groups;
        const double count = static_cast<double>(size) * s_.pixels;
        float* const mean = constants_;
        float* const inverse = constants_ + all;
        float* const offset = constants_ + 2 * all;
        float* const product = constants_ + 3 * all;
        for (int c = 0; c != all; ++c) {
            mean[c] = statistics[2 * (c / size)];
            inverse[c] = statistics[2 * (c / size) + 1];
        }
        for_each_source([&](const float* x, int width, int first) {
            for_lanes(0, width, [&]<int W>(std::int64_t c) { sum_gradients<W>(x, width, first, c, dy, du); });
        });
        for (int g = 0; g != s_.groups; ++g) {
            double sum = 0.0;
            double moment = 0.0;
            for (int c = g * size; c != (g + 1) * size; ++c) {
                sum += static_cast<double>(gamma_[c]) * sums_[c];
                moment += static_cast<double>(gamma_[c]) * sums_[all + c];
            }
            const auto inv = static_cast<double>(statistics[2 * g + 1]);
            std::fill(offset + g * size, offset + (g + 1) * size, static_cast<float>(inv * sum / count));
            std::fill(product + g * size, product + (g + 1) * size, static_cast<float>(inv * moment / count));
        }
        const float* const g = s_.silu ? du : dy;
        for_each_source([&](const float* x, int width, int first) {
            float* const dx = first == 0 ? dxa : dxb;
            const bool adds = first == 0 && how == into::add;
            for_lanes(0, width, [&]<int W>(std::int64_t c) {
                const floats<W> m = load<W>(mean + first + c);
                const floats<W> i = load<W>(inverse + first + c);
                const floats<W> a = i * load<W>(gamma_ + first + c);
                const floats<W> o = load<W>(offset + first + c);
                const floats<W> k = load<W>(product + first + c);
                for (int p = 0; p != s_.pixels; ++p) {
                    float* const target = dx + at(p, width, c);
                    const floats<W> normal = (load<W>(x + at(p, width, c)) - m) * i;
                    const floats<W> d = load<W>(g + at(p, all, first + c)) * a - o - normal * k;
                    store<W>(adds ? load<W>(target) + d : d, target);
                }
            });
        });
    }

private:
    [[nodiscard]] static std::int64_t at(std::int64_t pixel, int width, std::int64_t c) noexcept {
        return pixel * width + c;
    }

    template <class F>
    void for_each_source(F f) const noexcept {
        f(xa_, s_.channels, 0);
        if (s_.second_channels != 0) { f(xb_, s_.second_channels, s_.channels); }
    }

    /// into[lane] = sum over pixels of what `add(pixel, sum)` adds.
    template <int W, class F>
    [[gnu::always_inline]] void reduce(double* into, F add) const noexcept {
        double total[static_cast<std::size_t>(W)]{};
        for (int from = 0; from < s_.pixels; from += 64) {
            const int to = std::min(s_.pixels, from + 64);
            floats<W> sums[4]{};
            int p = from;
            for (; p + 4 <= to; p += 4) {
                for (int u = 0; u != 4; ++u) { add(p + u, sums[u]); }
            }
            for (; p != to; ++p) { add(p, sums[0]); }
            const floats<W> sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
            for (int l = 0; l != W; ++l) { total[l] += static_cast<double>(sum[l]); }
        }
        std::copy(total, total + W, into);
    }

    template <int W>
    [[gnu::always_inline]] void sum_gradients(const float* x, int width, int first, std::int64_t c, const float* dy,
                                              float* du) const noexcept {
        const int all = s_.all_channels();
        const floats<W> m = load<W>(constants_ + first + c);
        const floats<W> i = load<W>(constants_ + all + first + c);
        const floats<W> a = load<W>(gamma_ + first + c);
        const floats<W> b = load<W>(beta_ + first + c);
        double total[static_cast<std::size_t>(W)]{};
        double moment[static_cast<std::size_t>(W)]{};
        for (int from = 0; from < s_.pixels; from += 64) {
            const int to = std::min(s_.pixels, from + 64);
            floats<W> sum{};
            floats<W> product{};
            for (int p = from; p != to; ++p) {
                const floats<W> normal = (load<W>(x + at(p, width, c)) - m) * i;
                floats<W> g = load<W>(dy + at(p, all, first + c));
                if (s_.silu) {
                    g *= silu_slope<W>(normal * a + b);
                    store<W>(g, du + at(p, all, first + c));
                }
                sum += g;
                product += g * normal;
            }
            for (int l = 0; l != W; ++l) {
                total[l] += static_cast<double>(sum[l]);
                moment[l] += static_cast<double>(product[l]);
            }
        }
        std::copy(total, total + W, sums_ + first + c);
        std::copy(moment, moment + W, sums_ + all + first + c);
    }

    const group_norm_shape& s_;
    const float* xa_;
    const float* xb_;
    const float* gamma_;
    const float* beta_;
    double* sums_;
    float* constants_;
};

} // namespace pulse::onednn
