#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/runtime/backend.hpp>

namespace pulse::host {

/// The operations of transformers as plain loops in scalar type T: a part of reference_backend.
template <std::floating_point T>
class reference_tokens {
public:
    void attention(const attention_shape& shape, int batch, const T* q, const T* k, const T* v, T* o, T* lse) {
        const int size = shape.head_size;
        const T scale = T{1} / std::sqrt(static_cast<T>(size));
        if (scores_.size() < static_cast<std::size_t>(shape.keys())) {
            scores_.resize(static_cast<std::size_t>(shape.keys()));
        }
        T* const score = scores_.data();
        for (int b = 0; b != batch; ++b) {
            for (int h = 0; h != shape.heads; ++h) {
                for (int i = 0; i != shape.tokens; ++i) {
                    const std::int64_t row = head_at(shape, shape.tokens, b, i, h);
                    T greatest{};
                    for (int j = 0; j != shape.keys(); ++j) {
                        score[j] = scale * dot(size, q + row, k + head_at(shape, shape.keys(), b, j, h));
                        greatest = j == 0 || score[j] > greatest ? score[j] : greatest;
                    }
                    T sum{0};
                    for (int j = 0; j != shape.keys(); ++j) { sum += std::exp(score[j] - greatest); }
                    const T log_sum = greatest + std::log(sum);
                    lse[(std::int64_t{b} * shape.heads + h) * shape.tokens + i] = log_sum;
                    for (int d = 0; d != size; ++d) { o[row + d] = T{0}; }
                    for (int j = 0; j != shape.keys(); ++j) {
                        const T p = std::exp(score[j] - log_sum);
                        const T* value = v + head_at(shape, shape.keys(), b, j, h);
                        for (int d = 0; d != size; ++d) { o[row + d] += p * value[d]; }
                    }
                }
            }
        }
    }
    void attention_backward(const attention_shape& shape, int batch, const T* q, const T* k, const T* v, const T* o,
                            const T* lse, const T* dout, T* dq, T* dk, T* dv) {
        const int size = shape.head_size;
        const T scale = T{1} / std::sqrt(static_cast<T>(size));
        const std::int64_t keys = std::int64_t{batch} * shape.keys() * shape.width();
        std::fill(dq, dq + std::int64_t{batch} * shape.tokens * shape.width(), T{0});
        std::fill(dk, dk + keys, T{0});
        std::fill(dv, dv + keys, T{0});
        for (int b = 0; b != batch; ++b) {
            for (int h = 0; h != shape.heads; ++h) {
                for (int i = 0; i != shape.tokens; ++i) {
                    const std::int64_t row = head_at(shape, shape.tokens, b, i, h);
                    const T log_sum = lse[(std::int64_t{b} * shape.heads + h) * shape.tokens + i];
                    const T mean = dot(size, dout + row, o + row);
                    for (int j = 0; j != shape.keys(); ++j) {
                        const std::int64_t other = head_at(shape, shape.keys(), b, j, h);
                        const T p = std::exp(scale * dot(size, q + row, k + other) - log_sum);
                        const T ds = scale * p * (dot(size, dout + row, v + other) - mean);
                        for (int d = 0; d != size; ++d) {
                            dq[row + d] += ds * k[other + d];
                            dk[other + d] += ds * q[row + d];
                            dv[other + d] += p * dout[row + d];
                        }
                    }
                }
            }
        }
    }

    void layer_norm(const layer_norm_shape& shape, std::int64_t rows, const T* x, const T* gamma, const T* beta, T* y,
                    T* statistics) {
        const T count = static_cast<T>(shape.features);
        for (std::int64_t r = 0; r != rows; ++r) {
            const T* const row = x + r * shape.features;
            T mean{0};
            for (int c = 0; c != shape.features; ++c) { mean += row[c]; }
            mean /= count;
            T variance{0};
            for (int c = 0; c != shape.features; ++c) { variance += (row[c] - mean) * (row[c] - mean); }
            const T inverse = T{1} / std::sqrt(variance / count + static_cast<T>(shape.epsilon));
            statistics[2 * r] = mean;
            statistics[2 * r + 1] = inverse;
            for (int c = 0; c != shape.features; ++c) {
                y[r * shape.features + c] = (row[c] - mean) * inverse * gamma[c] + beta[c];
            }
        }
    }
    /// With g = gamma dy: dx = (g - mean(g) - xhat mean(g xhat)) / sigma, where the means run over the row.
    void layer_norm_backward(const layer_norm_shape& shape, std::int64_t rows, const T* x, const T* gamma,
                             const T* statistics, const T* dy, T* dx, T* dgamma, T* dbeta, into how) {
        const T count = static_cast<T>(shape.features);
        for (std::int64_t r = 0; r != rows; ++r) {
            const std::int64_t at = r * shape.features;
            const T inverse = statistics[2 * r + 1];
            const auto normal = [&](int c) { return (x[at + c] - statistics[2 * r]) * inverse; };
            T sum{0};
            T product{0};
            for (int c = 0; c != shape.features; ++c) {
                dgamma[c] += dy[at + c] * normal(c);
                dbeta[c] += dy[at + c];
                sum += gamma[c] * dy[at + c];
                product += gamma[c] * dy[at + c] * normal(c);
            }
            for (int c = 0; c != shape.features; ++c) {
                const T d = (gamma[c] * dy[at + c] - sum / count - normal(c) * (product / count)) * inverse;
                dx[at + c] = how == into::add ? dx[at + c] + d : d;
            }
        }
    }

    void gelu(std::int64_t n, const T* x, T* y) {
        for (std::int64_t i = 0; i != n; ++i) { y[i] = x[i] * normal_distribution(x[i]); }
    }
    void gelu_backward(std::int64_t n, const T* x, const T* dy, T* dx, into how) {
        for (std::int64_t i = 0; i != n; ++i) {
            const T d = dy[i] * gelu_slope(x[i]);
            dx[i] = how == into::add ? dx[i] + d : d;
        }
    }
    void geglu(std::int64_t rows, int features, const T* x, T* y) {
        for (std::int64_t r = 0; r != rows; ++r) {
            for (int c = 0; c != features; ++c) {
                const T gate = x[(2 * r + 1) * features + c];
                y[r * features + c] = x[2 * r * features + c] * gate * normal_distribution(gate);
            }
        }
    }
    void geglu_backward(std::int64_t rows, int features, const T* x, const T* dy, T* dx) {
        for (std::int64_t r = 0; r != rows; ++r) {
            for (int c = 0; c != features; ++c) {
                const std::int64_t value = 2 * r * features + c;
                const std::int64_t gate = value + features;
                dx[value] = dy[r * features + c] * x[gate] * normal_distribution(x[gate]);
                dx[gate] = dy[r * features + c] * x[value] * gelu_slope(x[gate]);
            }
        }
    }

    void copy_rows(std::int64_t rows, std::int64_t n, const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride) {
        for (std::int64_t r = 0; r != rows; ++r) { std::copy_n(x + r * x_stride, n, y + r * y_stride); }
    }
    void patches_to_image(const patch_shape& shape, int batch, const T* x, T* y) {
        for_pixels(shape, batch, [&](std::int64_t token_element, std::int64_t pixel) { y[pixel] = x[token_element]; });
    }
    void image_to_patches(const patch_shape& shape, int batch, const T* x, T* y) {
        std::fill(y, y + std::int64_t{batch} * shape.tokens() * shape.features(), T{0});
        for_pixels(shape, batch, [&](std::int64_t token_element, std::int64_t pixel) { y[token_element] = x[pixel]; });
    }

    [[nodiscard]] std::int64_t scratch_bytes() const noexcept {
        return static_cast<std::int64_t>(scores_.capacity() * sizeof(T));
    }

private:
    /// `tokens` is how many rows a sample of the tensor has.
    [[nodiscard]] static std::int64_t head_at(const attention_shape& shape, int tokens, int b, int token,
                                              int head) noexcept {
        return (std::int64_t{b} * tokens + token) * shape.width() + std::int64_t{head} * shape.head_size;
    }
    [[nodiscard]] static T dot(int n, const T* a, const T* b) noexcept {
        T sum{0};
        for (int i = 0; i != n; ++i) { sum += a[i] * b[i]; }
        return sum;
    }
    [[nodiscard]] static T normal_distribution(T x) noexcept {
        return std::erfc(-x * static_cast<T>(0.70710678118654752440)) / 2;
    }
    /// Phi(x) + x phi(x), with phi the density of the normal distribution.
    [[nodiscard]] static T gelu_slope(T x) noexcept {
        return normal_distribution(x) + x * std::exp(-x * x / 2) * static_cast<T>(0.39894228040143267794);
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

    std::vector<T> scores_{};
};

} // namespace pulse::host
