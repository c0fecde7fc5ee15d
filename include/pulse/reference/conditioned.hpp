#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>

#include <pulse/reference/embedding.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::reference {

/// The operations of transformers with text, labels and positions as plain loops over scalars of type T, computed in A:
/// a part of reference::backend.
template <class T, std::floating_point A = T>
class conditioned {
public:
    void adaptive_norm(const adaptive_norm_shape& s, int batch, const T* x, const T* gamma, const T* beta,
                       const T* scale, const T* shift, T* y, A* statistics) {
        const A count = static_cast<A>(s.features);
        for (std::int64_t r = 0; r != std::int64_t{batch} * s.tokens; ++r) {
            const std::int64_t at = r * s.features;
            const std::int64_t modulation = r / s.tokens * s.stride;
            A mean{0};
            for (int c = 0; c != s.features; ++c) { mean += static_cast<A>(x[at + c]); }
            mean /= count;
            A variance{0};
            for (int c = 0; c != s.features; ++c) {
                const A d = static_cast<A>(x[at + c]) - mean;
                variance += d * d;
            }
            const A inverse = A{1} / std::sqrt(variance / count + static_cast<A>(s.epsilon));
            statistics[2 * r] = mean;
            statistics[2 * r + 1] = inverse;
            for (int c = 0; c != s.features; ++c) {
                const A normal = affine((static_cast<A>(x[at + c]) - mean) * inverse, gamma, beta, c);
                const A factor = factor_of(scale, modulation + c);
                y[at + c] = static_cast<T>(normal * factor + static_cast<A>(shift[modulation + c]));
            }
        }
    }
    /// With g = gamma (1 + scale) dy: dx = (g - mean(g) - xhat mean(g xhat)) / sigma, where the means run over the row.
    void adaptive_norm_backward(const adaptive_norm_shape& s, int batch, const T* x, const T* gamma, const T* beta,
                                const T* scale, const A* statistics, const T* dy, T* dx,
                                gradient_place<A> gamma_gradient, gradient_place<A> beta_gradient, T* dscale, T* dshift,
                                into how) {
        A* const dgamma = gamma_gradient.begun(s.features);
        A* const dbeta = beta_gradient.begun(s.features);
        const A count = static_cast<A>(s.features);
        for (std::int64_t r = 0; r != std::int64_t{batch} * s.tokens; ++r) {
            const row_of_norm row{s, r, x, gamma, scale, statistics, dy};
            A sum{0};
            A product{0};
            for (int c = 0; c != s.features; ++c) {
                sum += row.slope(c);
                product += row.slope(c) * row.normal(c);
            }
            for (int c = 0; c != s.features; ++c) {
                const A d = (row.slope(c) - sum / count - row.normal(c) * (product / count)) * row.inverse();
                store(d, how, dx[r * s.features + c]);
            }
        }
        for (int b = 0; b != batch; ++b) {
            for (int c = 0; c != s.features; ++c) {
                A to_scale{0};
                A to_shift{0};
                for (int t = 0; t != s.tokens; ++t) {
                    const row_of_norm row{s, std::int64_t{b} * s.tokens + t, x, gamma, scale, statistics, dy};
                    to_scale += row.gradient(c) * affine(row.normal(c), gamma, beta, c);
                    to_shift += row.gradient(c);
                    if (dgamma != nullptr) {
                        dgamma[c] += row.inner(c) * row.normal(c);
                        dbeta[c] += row.inner(c);
                    }
                }
                if (scale != nullptr) { dscale[b * s.stride + c] = static_cast<T>(to_scale); }
                dshift[b * s.stride + c] = static_cast<T>(to_shift);
            }
        }
    }

    void gelu_tanh(std::int64_t n, const T* x, T* y) {
        for (std::int64_t i = 0; i != n; ++i) {
            const A value = static_cast<A>(x[i]);
            y[i] = static_cast<T>(value * (A{1} + std::tanh(bent(value))) / 2);
        }
    }
    void gelu_tanh_backward(std::int64_t n, const T* x, const T* dy, T* dx, into how) {
        for (std::int64_t i = 0; i != n; ++i) {
            const A value = static_cast<A>(x[i]);
            const A t = std::tanh(bent(value));
            const A bend = root * (A{1} + 3 * cubic * value * value);
            store(static_cast<A>(dy[i]) * ((A{1} + t) / 2 + value * (A{1} - t * t) * bend / 2), how, dx[i]);
        }
    }

    void rotary(const rotary_shape& s, int batch, const T* x, T* y) { turn(s, batch, A{1}, x, y); }
    void rotary_backward(const rotary_shape& s, int batch, const T* dy, T* dx) { turn(s, batch, A{-1}, dy, dx); }

    void embedding(const embedding_shape& s, std::int64_t rows, const A* indices, const T* table, T* y) {
        for (std::int64_t r = 0; r != rows; ++r) {
            const std::int64_t entry = embedding_row(s, indices[r]);
            for (int c = 0; c != s.features; ++c) { y[r * s.features + c] = table[entry * s.features + c]; }
        }
    }
    void embedding_backward_weight(const embedding_shape& s, std::int64_t rows, const A* indices, const T* dy,
                                   gradient_place<A> table_gradient) {
        A* const dtable = table_gradient.begun(std::int64_t{s.entries} * s.features);
        for (std::int64_t r = 0; r != rows; ++r) {
            const std::int64_t entry = embedding_row(s, indices[r]);
            for (int c = 0; c != s.features; ++c) {
                dtable[entry * s.features + c] += static_cast<A>(dy[r * s.features + c]);
            }
        }
    }

    void replace_padding(int batch, int tokens, int features, const A* mask, const T* padding, T* y) {
        for (std::int64_t r = 0; r != std::int64_t{batch} * tokens; ++r) {
            if (mask[r] != A{0}) { continue; }
            for (int c = 0; c != features; ++c) { y[r * features + c] = padding[r % tokens * features + c]; }
        }
    }
    void replace_padding_backward(int batch, int tokens, int features, const A* mask, const T* dy, T* dx,
                                  gradient_place<A> padding_gradient) {
        A* const dpadding = padding_gradient.begun(std::int64_t{tokens} * features);
        for (std::int64_t r = 0; r != std::int64_t{batch} * tokens; ++r) {
            for (int c = 0; c != features; ++c) {
                const T d = dy[r * features + c];
                if (mask[r] == A{0}) { dpadding[r % tokens * features + c] += static_cast<A>(d); }
                dx[r * features + c] = mask[r] != A{0} ? d : static_cast<T>(A{0});
            }
        }
    }

    void scale(std::int64_t n, A factor, const T* x, T* y) {
        for (std::int64_t i = 0; i != n; ++i) { y[i] = static_cast<T>(factor * static_cast<A>(x[i])); }
    }

private:
    static constexpr A root = static_cast<A>(0.79788456080286535588); ///< sqrt(2 / pi)
    static constexpr A cubic = static_cast<A>(0.044715);

    /// One row of an adaptive norm's backward.
    struct row_of_norm {
        const adaptive_norm_shape& shape;
        std::int64_t row;
        const T *x, *gamma, *scale;
        const A* statistics;
        const T* dy;

        [[nodiscard]] A inverse() const { return statistics[2 * row + 1]; }
        [[nodiscard]] A normal(int c) const {
            return (static_cast<A>(x[row * shape.features + c]) - statistics[2 * row]) * inverse();
        }
        [[nodiscard]] A gradient(int c) const { return static_cast<A>(dy[row * shape.features + c]); }
        /// The gradient of the affine's output.
        [[nodiscard]] A inner(int c) const {
            return gradient(c) * factor_of(scale, row / shape.tokens * shape.stride + c);
        }
        [[nodiscard]] A slope(int c) const { return gamma != nullptr ? static_cast<A>(gamma[c]) * inner(c) : inner(c); }
    };

    static void store(A value, into how, T& to) noexcept {
        to = static_cast<T>(how == into::add ? static_cast<A>(to) + value : value);
    }
    [[nodiscard]] static A bent(A x) noexcept { return root * (x + cubic * x * x * x); }
    [[nodiscard]] static A affine(A normal, const T* gamma, const T* beta, int c) noexcept {
        return gamma != nullptr ? normal * static_cast<A>(gamma[c]) + static_cast<A>(beta[c]) : normal;
    }
    [[nodiscard]] static A factor_of(const T* scale, std::int64_t at) noexcept {
        return scale != nullptr ? A{1} + static_cast<A>(scale[at]) : A{1};
    }
    static void turn(const rotary_shape& s, int batch, A direction, const T* x, T* y) {
        for (std::int64_t r = 0; r != std::int64_t{batch} * s.tokens(); ++r) {
            const int token = static_cast<int>(r % s.tokens());
            for (int h = 0; h != s.heads; ++h) {
                for (int pair = 0; pair != s.head_size / 2; ++pair) {
                    const std::int64_t at = r * s.width() + std::int64_t{h} * s.head_size + 2 * pair;
                    const double angle = s.angle(token, pair);
                    const A cosine = static_cast<A>(std::cos(angle));
                    const A sine = direction * static_cast<A>(std::sin(angle));
                    const A even = static_cast<A>(x[at]);
                    const A odd = static_cast<A>(x[at + 1]);
                    y[at] = static_cast<T>(even * cosine - odd * sine);
                    y[at + 1] = static_cast<T>(odd * cosine + even * sine);
                }
            }
        }
    }
};

} // namespace pulse::reference
