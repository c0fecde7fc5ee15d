#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/runtime/backend.hpp>

namespace pulse::reference {

/// The operations of transformers as plain loops over scalars of type T, computed in A: a part of reference::backend.
template <class T, std::floating_point A = T>
class tokens {
public:
    void attention(const attention_shape& shape, int batch, const T* q, const T* k, const T* v, T* o, A* lse) {
        const int size = shape.head_size;
        const A scale = A{1} / std::sqrt(static_cast<A>(size));
        if (scores_.size() < static_cast<std::size_t>(shape.keys())) {
            scores_.resize(static_cast<std::size_t>(shape.keys()));
        }
        if (sums_.size() < static_cast<std::size_t>(size)) { sums_.resize(static_cast<std::size_t>(size)); }
        A* const score = scores_.data();
        for (int b = 0; b != batch; ++b) {
            for (int h = 0; h != shape.heads; ++h) {
                for (int i = 0; i != shape.tokens; ++i) {
                    const std::int64_t row = head_at(shape, shape.tokens, b, i, h);
                    A greatest{};
                    for (int j = 0; j != shape.keys(); ++j) {
                        score[j] = scale * dot(size, q + row, k + head_at(shape, shape.keys(), b, j, h));
                        greatest = j == 0 || score[j] > greatest ? score[j] : greatest;
                    }
                    A sum{0};
                    for (int j = 0; j != shape.keys(); ++j) { sum += std::exp(score[j] - greatest); }
                    const A log_sum = greatest + std::log(sum);
                    lse[(std::int64_t{b} * shape.heads + h) * shape.tokens + i] = log_sum;
                    A* const mean = sums_.data();
                    std::fill(mean, mean + size, A{0});
                    for (int j = 0; j != shape.keys(); ++j) {
                        const A p = std::exp(score[j] - log_sum);
                        const T* value = v + head_at(shape, shape.keys(), b, j, h);
                        for (int d = 0; d != size; ++d) { mean[d] += p * static_cast<A>(value[d]); }
                    }
                    for (int d = 0; d != size; ++d) { o[row + d] = static_cast<T>(mean[d]); }
                }
            }
        }
    }
    void attention_backward(const attention_shape& shape, int batch, const T* q, const T* k, const T* v, const T* o,
                            const A* lse, const T* dout, T* dq, T* dk, T* dv) {
        const int size = shape.head_size;
        const A scale = A{1} / std::sqrt(static_cast<A>(size));
        const std::int64_t keys = std::int64_t{batch} * shape.keys() * shape.width();
        std::fill(dq, dq + std::int64_t{batch} * shape.tokens * shape.width(), static_cast<T>(A{0}));
        std::fill(dk, dk + keys, static_cast<T>(A{0}));
        std::fill(dv, dv + keys, static_cast<T>(A{0}));
        for (int b = 0; b != batch; ++b) {
            for (int h = 0; h != shape.heads; ++h) {
                for (int i = 0; i != shape.tokens; ++i) {
                    const std::int64_t row = head_at(shape, shape.tokens, b, i, h);
                    const A log_sum = lse[(std::int64_t{b} * shape.heads + h) * shape.tokens + i];
                    const A mean = dot(size, dout + row, o + row);
                    for (int j = 0; j != shape.keys(); ++j) {
                        const std::int64_t other = head_at(shape, shape.keys(), b, j, h);
                        const A p = std::exp(scale * dot(size, q + row, k + other) - log_sum);
                        const A ds = scale * p * (dot(size, dout + row, v + other) - mean);
                        for (int d = 0; d != size; ++d) {
                            add_to(dq[row + d], ds * static_cast<A>(k[other + d]));
                            add_to(dk[other + d], ds * static_cast<A>(q[row + d]));
                            add_to(dv[other + d], p * static_cast<A>(dout[row + d]));
                        }
                    }
                }
            }
        }
    }

    void layer_norm(const layer_norm_shape& shape, std::int64_t rows, const T* x, const T* gamma, const T* beta, T* y,
                    A* statistics) {
        const A count = static_cast<A>(shape.features);
        for (std::int64_t r = 0; r != rows; ++r) {
            const T* const row = x + r * shape.features;
            A mean{0};
            for (int c = 0; c != shape.features; ++c) { mean += static_cast<A>(row[c]); }
            mean /= count;
            A variance{0};
            for (int c = 0; c != shape.features; ++c) {
                const A d = static_cast<A>(row[c]) - mean;
                variance += d * d;
            }
            const A inverse = A{1} / std::sqrt(variance / count + static_cast<A>(shape.epsilon));
            statistics[2 * r] = mean;
            statistics[2 * r + 1] = inverse;
            for (int c = 0; c != shape.features; ++c) {
                y[r * shape.features + c] = static_cast<T>(
                    (static_cast<A>(row[c]) - mean) * inverse * static_cast<A>(gamma[c]) + static_cast<A>(beta[c]));
            }
        }
    }
    /// With g = gamma dy: dx = (g - mean(g) - xhat mean(g xhat)) / sigma, where the means run over the row.
    void layer_norm_backward(const layer_norm_shape& shape, std::int64_t rows, const T* x, const T* gamma,
                             const A* statistics, const T* dy, T* dx, gradient_place<A> gamma_gradient,
                             gradient_place<A> beta_gradient, into how) {
        A* const dgamma = gamma_gradient.begun(shape.features);
        A* const dbeta = beta_gradient.begun(shape.features);
        const A count = static_cast<A>(shape.features);
        for (std::int64_t r = 0; r != rows; ++r) {
            const std::int64_t at = r * shape.features;
            const A inverse = statistics[2 * r + 1];
            const auto normal = [&](int c) { return (static_cast<A>(x[at + c]) - statistics[2 * r]) * inverse; };
            A sum{0};
            A product{0};
            for (int c = 0; c != shape.features; ++c) {
                const A g = static_cast<A>(dy[at + c]);
                const A scaled = static_cast<A>(gamma[c]) * g;
                if (dgamma != nullptr) {
                    dgamma[c] += g * normal(c);
                    dbeta[c] += g;
                }
                sum += scaled;
                product += scaled * normal(c);
            }
            for (int c = 0; c != shape.features; ++c) {
                const A scaled = static_cast<A>(gamma[c]) * static_cast<A>(dy[at + c]);
                store((scaled - sum / count - normal(c) * (product / count)) * inverse, how, dx[at + c]);
            }
        }
    }

    void gelu(std::int64_t n, const T* x, T* y) {
        for (std::int64_t i = 0; i != n; ++i) {
            const A value = static_cast<A>(x[i]);
            y[i] = static_cast<T>(value * normal_distribution(value));
        }
    }
    void gelu_backward(std::int64_t n, const T* x, const T* dy, T* dx, into how) {
        for (std::int64_t i = 0; i != n; ++i) {
            store(static_cast<A>(dy[i]) * gelu_slope(static_cast<A>(x[i])), how, dx[i]);
        }
    }
    void geglu(std::int64_t rows, int features, const T* x, T* y) {
        for (std::int64_t r = 0; r != rows; ++r) {
            for (int c = 0; c != features; ++c) {
                const A gate = static_cast<A>(x[(2 * r + 1) * features + c]);
                y[r * features + c] =
                    static_cast<T>(static_cast<A>(x[2 * r * features + c]) * gate * normal_distribution(gate));
            }
        }
    }
    void geglu_backward(std::int64_t rows, int features, const T* x, const T* dy, T* dx) {
        for (std::int64_t r = 0; r != rows; ++r) {
            for (int c = 0; c != features; ++c) {
                const std::int64_t value_at = 2 * r * features + c;
                const std::int64_t gate_at = value_at + features;
                const A g = static_cast<A>(dy[r * features + c]);
                const A gate = static_cast<A>(x[gate_at]);
                dx[gate_at] = static_cast<T>(g * static_cast<A>(x[value_at]) * gelu_slope(gate));
                dx[value_at] = static_cast<T>(g * gate * normal_distribution(gate));
            }
        }
    }

    void copy_rows(std::int64_t rows, std::int64_t n, const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride) {
        for (std::int64_t r = 0; r != rows; ++r) { std::copy_n(x + r * x_stride, n, y + r * y_stride); }
    }
    void add_resampled(const resample_shape& shape, int batch, const T* x, T* y) {
        if (sums_.size() < static_cast<std::size_t>(shape.features)) {
            sums_.resize(static_cast<std::size_t>(shape.features));
        }
        for (int to = 0; to != shape.tokens(); ++to) {
            std::fill_n(sums_.begin(), shape.features, A{0});
            shape.each_tap(to, [&](int from, double weight) {
                const T* const of = x + std::int64_t{from} * shape.features;
                for (int c = 0; c != shape.features; ++c) {
                    sums_[static_cast<std::size_t>(c)] += static_cast<A>(weight) * static_cast<A>(of[c]);
                }
            });
            for (int b = 0; b != batch; ++b) {
                T* const row = y + (std::int64_t{b} * shape.tokens() + to) * shape.features;
                for (int c = 0; c != shape.features; ++c) { add_to(row[c], sums_[static_cast<std::size_t>(c)]); }
            }
        }
    }
    void resampled_sums(const resample_shape& shape, int batch, const T* dy, gradient_place<A> sums) {
        A* const dx = sums.begun(std::int64_t{shape.from_tokens()} * shape.features);
        for (int b = 0; b != batch; ++b) {
            for (int to = 0; to != shape.tokens(); ++to) {
                const T* const of = dy + (std::int64_t{b} * shape.tokens() + to) * shape.features;
                shape.each_tap(to, [&](int from, double weight) {
                    A* const row = dx + std::int64_t{from} * shape.features;
                    for (int c = 0; c != shape.features; ++c) {
                        row[c] += static_cast<A>(weight) * static_cast<A>(of[c]);
                    }
                });
            }
        }
    }
    void patches_to_image(const patch_shape& shape, int batch, const T* x, T* y) {
        for_pixels(shape, batch, [&](std::int64_t token_element, std::int64_t pixel) { y[pixel] = x[token_element]; });
    }
    void image_to_patches(const patch_shape& shape, int batch, const T* x, T* y) {
        std::fill(y, y + std::int64_t{batch} * shape.tokens() * shape.features(), static_cast<T>(A{0}));
        for_pixels(shape, batch, [&](std::int64_t token_element, std::int64_t pixel) { y[token_element] = x[pixel]; });
    }

    [[nodiscard]] std::int64_t scratch_bytes() const noexcept {
        return static_cast<std::int64_t>((scores_.capacity() + sums_.capacity()) * sizeof(A));
    }

private:
    /// `tokens` is the number of rows per sample of the tensor.
    [[nodiscard]] static std::int64_t head_at(const attention_shape& shape, int tokens, int b, int token,
                                              int head) noexcept {
        return (std::int64_t{b} * tokens + token) * shape.width() + std::int64_t{head} * shape.head_size;
    }
    static void store(A value, into how, T& to) noexcept {
        to = static_cast<T>(how == into::add ? static_cast<A>(to) + value : value);
    }
    static void add_to(T& to, A value) noexcept { store(value, into::add, to); }
    [[nodiscard]] static A dot(int n, const T* a, const T* b) noexcept {
        A sum{0};
        for (int i = 0; i != n; ++i) { sum += static_cast<A>(a[i]) * static_cast<A>(b[i]); }
        return sum;
    }
    [[nodiscard]] static A normal_distribution(A x) noexcept {
        return std::erfc(-x * static_cast<A>(0.70710678118654752440)) / 2;
    }
    /// Phi(x) + x phi(x), with phi the density of the normal distribution.
    [[nodiscard]] static A gelu_slope(A x) noexcept {
        return normal_distribution(x) + x * std::exp(-x * x / 2) * static_cast<A>(0.39894228040143267794);
    }
    /// Calls f(offset among the tokens, offset in the image) for every number of the image.
    template <class F>
    static void for_pixels(const patch_shape& s, int batch, F f) {
        const int width = s.columns * s.patch;
        for (int b = 0; b != batch; ++b) {
            for (int row = 0; row != s.rows * s.patch; ++row) {
                for (int column = 0; column != width; ++column) {
                    const int token = s.leading + row / s.patch * s.columns + column / s.patch;
                    const int in_patch = row % s.patch * s.patch + column % s.patch;
                    for (int c = 0; c != s.channels; ++c) {
                        f((std::int64_t{b} * s.tokens() + token) * s.features() + std::int64_t{in_patch} * s.channels +
                              c,
                          b * s.image_elements() + (std::int64_t{row} * width + column) * s.channels + c);
                    }
                }
            }
        }
    }

    std::vector<A> scores_{};
    std::vector<A> sums_{};
};

} // namespace pulse::reference
