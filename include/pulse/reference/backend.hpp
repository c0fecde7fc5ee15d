#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <pulse/reference/conditioned.hpp>
#include <pulse/reference/convolution.hpp>
#include <pulse/reference/text.hpp>
#include <pulse/reference/tokens.hpp>
#include <pulse/runtime/picture_backend.hpp>

namespace pulse::reference {

/// The meaning of every operation of `backend` and `text_backend`, as plain loops over scalars of type T; parity tests
/// compare with it.
///
/// Everything is computed in the accumulator A and rounded to T where it is stored; T is any type that converts to A
/// and, explicitly, from it. Sums accumulate in the order of the loops, so results are deterministic. One object serves
/// one thread.
template <class T, std::floating_point A = T>
class backend : public tokens<T, A>, public conditioned<T, A>, public text<T, A> {
public:
    using scalar = T;
    using accumulator = A;

    void conv2d(const conv2d_shape& shape, int batch, const T* x, const T* weight, const T* bias, T* y, into how) {
        convolution<T, A>{shape, 0}.forward(batch, x, nullptr, weight, bias, y, how);
    }
    void conv2d_backward_input(const conv2d_shape& shape, int batch, const T* dy, const T* weight, T* dx, into how) {
        convolution<T, A>{shape, 0}.backward_input(batch, dy, weight, dx, nullptr, how);
    }
    void conv2d_backward_weight(const conv2d_shape& shape, int batch, const T* x, const T* dy,
                                gradient_place<A> dweight, gradient_place<A> dbias) {
        convolution<T, A>{shape, 0}.backward_weight(batch, x, nullptr, dy, dweight, dbias);
    }

    void conv2d_pair(const conv2d_shape& shape, int second, int batch, const T* xa, const T* xb, const T* weight,
                     const T* bias, T* y, into how) {
        convolution<T, A>{shape, second}.forward(batch, xa, xb, weight, bias, y, how);
    }
    /// `how` applies to both gradients.
    void conv2d_pair_backward_input(const conv2d_shape& shape, int second, int batch, const T* dy, const T* weight,
                                    T* dxa, T* dxb, into how) {
        convolution<T, A>{shape, second}.backward_input(batch, dy, weight, dxa, dxb, how);
    }
    void conv2d_pair_backward_weight(const conv2d_shape& shape, int second, int batch, const T* xa, const T* xb,
                                     const T* dy, gradient_place<A> dweight, gradient_place<A> dbias) {
        convolution<T, A>{shape, second}.backward_weight(batch, xa, xb, dy, dweight, dbias);
    }

    void linear(const linear_shape& shape, std::int64_t rows, const T* x, const T* weight, const T* bias, T* y,
                into how) {
        for (std::int64_t r = 0; r != rows; ++r) {
            for (int o = 0; o != shape.out_features; ++o) {
                A sum = bias != nullptr ? static_cast<A>(bias[o]) : A{0};
                for (int i = 0; i != shape.in_features; ++i) {
                    sum += static_cast<A>(x[r * shape.in_features + i]) *
                           static_cast<A>(weight[std::int64_t{o} * shape.in_features + i]);
                }
                store(sum, how, y[r * shape.out_features + o]);
            }
        }
    }
    void linear_backward_input(const linear_shape& shape, std::int64_t rows, const T* dy, const T* weight, T* dx,
                               into how) {
        for (std::int64_t r = 0; r != rows; ++r) {
            for (int i = 0; i != shape.in_features; ++i) {
                A sum{0};
                for (int o = 0; o != shape.out_features; ++o) {
                    sum += static_cast<A>(dy[r * shape.out_features + o]) *
                           static_cast<A>(weight[std::int64_t{o} * shape.in_features + i]);
                }
                store(sum, how, dx[r * shape.in_features + i]);
            }
        }
    }
    void linear_backward_weight(const linear_shape& shape, std::int64_t rows, const T* x, const T* dy,
                                gradient_place<A> weight_gradient, gradient_place<A> bias_gradient) {
        A* const dweight = weight_gradient.begun(std::int64_t{shape.in_features} * shape.out_features);
        A* const dbias = bias_gradient.begun(shape.out_features);
        for (std::int64_t r = 0; r != rows; ++r) {
            for (int o = 0; o != shape.out_features; ++o) {
                const A g = static_cast<A>(dy[r * shape.out_features + o]);
                if (dbias != nullptr) { dbias[o] += g; }
                for (int i = 0; i != shape.in_features; ++i) {
                    dweight[std::int64_t{o} * shape.in_features + i] +=
                        g * static_cast<A>(x[r * shape.in_features + i]);
                }
            }
        }
    }

    void group_norm(const group_norm_shape& shape, int batch, const T* xa, const T* xb, const T* gamma, const T* beta,
                    T* y, A* statistics) {
        measure_groups(shape, batch, xa, xb, statistics);
        for (int b = 0; b != batch; ++b) {
            for (int g = 0; g != shape.groups; ++g) {
                const A* const known = statistics + (std::int64_t{b} * shape.groups + g) * 2;
                over_group(shape, b, g, [&](std::int64_t n, const auto& at) {
                    y[n] = normalised(shape, at(xa, xb), known, gamma[at.channel], beta[at.channel]);
                });
            }
        }
    }
    void group_norm_statistics(const group_norm_shape& shape, int batch, const T* x, A* statistics) {
        measure_groups(shape, batch, x, nullptr, statistics);
    }
    void group_norm_rows(const group_norm_shape& shape, int rows, int width, const T* x, const T* gamma, const T* beta,
                         const A* statistics, T* y, std::int64_t y_stride) {
        const std::int64_t row = std::int64_t{width} * shape.channels;
        for (int r = 0; r != rows; ++r) {
            for (std::int64_t i = 0; i != row; ++i) {
                const std::int64_t c = i % shape.channels;
                const A* const known = statistics + c / (shape.channels / shape.groups) * 2;
                y[r * y_stride + i] = normalised(shape, static_cast<A>(x[r * row + i]), known, gamma[c], beta[c]);
            }
        }
    }
    void posterior(std::int64_t pixels, int channels, A factor, const T* moments, const T* noise, T* z) {
        for (std::int64_t i = 0; i != pixels * channels; ++i) {
            const T* const at = moments + i / channels * 2 * channels + i % channels;
            const A log_variance = std::clamp(static_cast<A>(at[channels]), A{-30}, A{20});
            const A deviation = std::exp(log_variance / A{2});
            z[i] = static_cast<T>(factor * (static_cast<A>(at[0]) + deviation * static_cast<A>(noise[i])));
        }
    }

    /// With u = gamma * xhat + beta and g = dL/du: dx = (gamma g - mean(gamma g) - xhat mean(gamma g xhat)) / sigma,
    /// where the means run over the group.
    void group_norm_backward(const group_norm_shape& shape, int batch, const T* xa, const T* xb, const T* gamma,
                             const T* beta, const A* statistics, const T* dy, T* dxa, T* dxb,
                             gradient_place<A> gamma_gradient, gradient_place<A> beta_gradient, into how) {
        A* const dgamma = gamma_gradient.begun(shape.all_channels());
        A* const dbeta = beta_gradient.begun(shape.all_channels());
        const int size = shape.all_channels() / shape.groups;
        const A count = static_cast<A>(std::int64_t{size} * shape.pixels);
        for (int b = 0; b != batch; ++b) {
            for (int g = 0; g != shape.groups; ++g) {
                const A mean = statistics[(std::int64_t{b} * shape.groups + g) * 2];
                const A inverse = statistics[(std::int64_t{b} * shape.groups + g) * 2 + 1];
                const auto gradient = [&](std::int64_t n, A normal, int c) {
                    const A dn = static_cast<A>(dy[n]);
                    return shape.silu ? dn * silu_slope(normal * static_cast<A>(gamma[c]) + static_cast<A>(beta[c]))
                                      : dn;
                };
                A sum{0};
                A product{0};
                over_group(shape, b, g, [&](std::int64_t n, const auto& at) {
                    const A normal = (at(xa, xb) - mean) * inverse;
                    const A du = gradient(n, normal, at.channel);
                    if (dgamma != nullptr) {
                        dgamma[at.channel] += du * normal;
                        dbeta[at.channel] += du;
                    }
                    sum += static_cast<A>(gamma[at.channel]) * du;
                    product += static_cast<A>(gamma[at.channel]) * du * normal;
                });
                over_group(shape, b, g, [&](std::int64_t n, const auto& at) {
                    const A normal = (at(xa, xb) - mean) * inverse;
                    const A du = gradient(n, normal, at.channel) * static_cast<A>(gamma[at.channel]);
                    const A dx = (du - sum / count - normal * (product / count)) * inverse;
                    if (at.second) {
                        dxb[at.offset] = static_cast<T>(dx);
                    } else {
                        store(dx, how, dxa[at.offset]);
                    }
                });
            }
        }
    }

    void silu(std::int64_t n, const T* x, T* y) {
        for (std::int64_t i = 0; i != n; ++i) {
            const A value = static_cast<A>(x[i]);
            y[i] = static_cast<T>(value * sigmoid(value));
        }
    }
    void silu_backward(std::int64_t n, const T* x, const T* dy, T* dx, into how) {
        for (std::int64_t i = 0; i != n; ++i) {
            store(static_cast<A>(dy[i]) * silu_slope(static_cast<A>(x[i])), how, dx[i]);
        }
    }
    void add(std::int64_t n, const T* x, T* y) {
        for (std::int64_t i = 0; i != n; ++i) { store(static_cast<A>(x[i]), into::add, y[i]); }
    }
    void copy(std::int64_t n, const T* x, T* y) {
        for (std::int64_t i = 0; i != n; ++i) { y[i] = x[i]; }
    }
    void fill(std::int64_t n, A value, T* y) {
        for (std::int64_t i = 0; i != n; ++i) { y[i] = static_cast<T>(value); }
    }
    void sum_rows(std::int64_t rows, std::int64_t features, const T* x, gradient_place<A> sums) {
        A* const y = sums.begun(features);
        for (std::int64_t c = 0; c != features; ++c) {
            A sum{0};
            for (std::int64_t r = 0; r != rows; ++r) { sum += static_cast<A>(x[r * features + c]); }
            y[c] += sum;
        }
    }

    void add_per_sample(int batch, int pixels, int channels, const T* t, T* y) {
        for (int b = 0; b != batch; ++b) {
            for (int p = 0; p != pixels; ++p) {
                add(channels, t + std::int64_t{b} * channels, y + pixel_at(b, p, pixels, channels));
            }
        }
    }
    void sum_pixels(int batch, int pixels, int channels, const T* y, T* t) {
        for (int b = 0; b != batch; ++b) {
            for (int c = 0; c != channels; ++c) {
                A sum{0};
                for (int p = 0; p != pixels; ++p) { sum += static_cast<A>(y[pixel_at(b, p, pixels, channels) + c]); }
                t[std::int64_t{b} * channels + c] = static_cast<T>(sum);
            }
        }
    }

    void upsample_nearest(int batch, int height, int width, int channels, const T* x, T* y) {
        for (int row = 0; row != batch * 2 * height; ++row) {
            for (int column = 0; column != 2 * width; ++column) {
                copy(channels, x + (std::int64_t{row / 2} * width + column / 2) * channels,
                     y + (std::int64_t{row} * 2 * width + column) * channels);
            }
        }
    }
    void upsample_nearest_backward(int batch, int height, int width, int channels, const T* dy, T* dx) {
        fill(std::int64_t{batch} * height * width * channels, A{0}, dx);
        for (int row = 0; row != batch * 2 * height; ++row) {
            for (int column = 0; column != 2 * width; ++column) {
                add(channels, dy + (std::int64_t{row} * 2 * width + column) * channels,
                    dx + (std::int64_t{row / 2} * width + column / 2) * channels);
            }
        }
    }

    /// e[b] = (sin(t w_0), sin(t w_1), ..., cos(t w_0), cos(t w_1), ...), w_i = 10000^(-i / (features / 2 - shift)).
    void sinusoid(int batch, int features, bool flip, double shift, const A* timesteps, T* e) {
        const int half = features / 2;
        for (int b = 0; b != batch; ++b) {
            T* const row = e + std::int64_t{b} * features;
            for (int i = 0; i != half; ++i) {
                const double frequency = std::exp(-std::log(10000.0) * i / (half - shift));
                const double angle = static_cast<double>(timesteps[b]) * frequency;
                row[flip ? half + i : i] = static_cast<T>(static_cast<A>(std::sin(angle)));
                row[flip ? i : half + i] = static_cast<T>(static_cast<A>(std::cos(angle)));
            }
        }
    }

    void weights_changed() noexcept {}

private:
    /// One element of a group, from one source or from either of two.
    struct element {
        int channel; ///< among all channels
        bool second;
        std::int64_t offset; ///< in its own source

        [[nodiscard]] A operator()(const T* xa, const T* xb) const {
            return static_cast<A>(second ? xb[offset] : xa[offset]);
        }
    };

    /// Calls f(offset in the concatenation, element) for every element of group g of sample b, pixel by pixel.
    template <class F>
    static void over_group(const group_norm_shape& shape, int b, int g, F f) {
        const int size = shape.all_channels() / shape.groups;
        for (int p = 0; p != shape.pixels; ++p) {
            const std::int64_t pixel = std::int64_t{b} * shape.pixels + p;
            for (int c = g * size; c != (g + 1) * size; ++c) {
                const bool second = c >= shape.channels;
                const std::int64_t offset =
                    second ? pixel * shape.second_channels + (c - shape.channels) : pixel * shape.channels + c;
                f(pixel * shape.all_channels() + c, element{c, second, offset});
            }
        }
    }

    static void measure_groups(const group_norm_shape& shape, int batch, const T* xa, const T* xb, A* statistics) {
        const A count = static_cast<A>(std::int64_t{shape.all_channels() / shape.groups} * shape.pixels);
        for (int b = 0; b != batch; ++b) {
            for (int g = 0; g != shape.groups; ++g) {
                A mean{0};
                over_group(shape, b, g, [&](std::int64_t, const auto& at) { mean += at(xa, xb); });
                mean /= count;
                A variance{0};
                over_group(shape, b, g, [&](std::int64_t, const auto& at) {
                    const A d = at(xa, xb) - mean;
                    variance += d * d;
                });
                statistics[(std::int64_t{b} * shape.groups + g) * 2] = mean;
                statistics[(std::int64_t{b} * shape.groups + g) * 2 + 1] =
                    A{1} / std::sqrt(variance / count + static_cast<A>(shape.epsilon));
            }
        }
    }
    /// `known` is the group's mean and 1/sqrt(var + eps).
    [[nodiscard]] static T normalised(const group_norm_shape& shape, A x, const A* known, T gamma, T beta) {
        const A u = (x - known[0]) * known[1] * static_cast<A>(gamma) + static_cast<A>(beta);
        return static_cast<T>(shape.silu ? u * sigmoid(u) : u);
    }

    [[nodiscard]] static std::int64_t pixel_at(int b, int p, int pixels, int channels) noexcept {
        return (std::int64_t{b} * pixels + p) * channels;
    }
    static void store(A value, into how, T& to) noexcept {
        to = static_cast<T>(how == into::add ? static_cast<A>(to) + value : value);
    }
    [[nodiscard]] static A sigmoid(A x) noexcept { return A{1} / (A{1} + std::exp(-x)); }
    [[nodiscard]] static A silu_slope(A x) noexcept {
        const A s = sigmoid(x);
        return s * (A{1} + x * (A{1} - s));
    }
};

static_assert(picture_backend<backend<double>>, "pulse: reference::backend has every operation of a picture_backend");

} // namespace pulse::reference
