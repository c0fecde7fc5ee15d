#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pulse/runtime/text_backend.hpp>

namespace pulse::reference {

/// The operations of text encoders as plain loops over scalars of type T, computed in A: a part of reference::backend.
template <class T, std::floating_point A = T>
class text {
public:
    void masked_attention(const masked_attention_shape& s, int batch, const T* q, const T* k, const T* v, const A* mask,
                          const T* bias, T* o) {
        std::vector<A> weights(static_cast<std::size_t>(s.tokens));
        for (int b = 0; b != batch; ++b) {
            for (int h = 0; h != s.heads; ++h) {
                for (int i = 0; i != s.tokens; ++i) {
                    const int keys = s.causal ? i + 1 : s.tokens;
                    const auto row = [&](int token) {
                        return (std::int64_t{b} * s.tokens + token) * s.width() + std::int64_t{h} * s.head_size;
                    };
                    for (int j = 0; j != keys; ++j) {
                        A score{0};
                        for (int d = 0; d != s.head_size; ++d) {
                            score += static_cast<A>(q[row(i) + d]) * static_cast<A>(k[row(j) + d]);
                        }
                        score *= static_cast<A>(s.scale);
                        if (bias != nullptr) {
                            score += static_cast<A>(bias[std::int64_t{j - i + s.tokens - 1} * s.heads + h]);
                        }
                        const bool counts = mask == nullptr || mask[std::int64_t{b} * s.tokens + j] != A{0};
                        weights[static_cast<std::size_t>(j)] = counts ? score : std::numeric_limits<A>::lowest();
                    }
                    const A greatest = *std::max_element(weights.begin(), weights.begin() + keys);
                    A sum{0};
                    for (int j = 0; j != keys; ++j) {
                        A& weight = weights[static_cast<std::size_t>(j)];
                        weight = std::exp(weight - greatest);
                        sum += weight;
                    }
                    for (int d = 0; d != s.head_size; ++d) {
                        A mean{0};
                        for (int j = 0; j != keys; ++j) {
                            mean += weights[static_cast<std::size_t>(j)] * static_cast<A>(v[row(j) + d]);
                        }
                        o[row(i) + d] = static_cast<T>(mean / sum);
                    }
                }
            }
        }
    }

    void rms_norm(const layer_norm_shape& s, std::int64_t rows, const T* x, const T* gamma, T* y) {
        for (std::int64_t r = 0; r != rows; ++r) {
            const T* const row = x + r * s.features;
            A squares{0};
            for (int c = 0; c != s.features; ++c) { squares += static_cast<A>(row[c]) * static_cast<A>(row[c]); }
            const A inverse = A{1} / std::sqrt(squares / static_cast<A>(s.features) + static_cast<A>(s.epsilon));
            for (int c = 0; c != s.features; ++c) {
                y[r * s.features + c] = static_cast<T>(static_cast<A>(row[c]) * inverse * static_cast<A>(gamma[c]));
            }
        }
    }

    void quick_gelu(std::int64_t n, const T* x, T* y) {
        for (std::int64_t i = 0; i != n; ++i) {
            const A value = static_cast<A>(x[i]);
            y[i] = static_cast<T>(value / (A{1} + std::exp(static_cast<A>(-1.702) * value)));
        }
    }
    void gate(std::int64_t n, const T* x, T* y) {
        for (std::int64_t i = 0; i != n; ++i) { y[i] = static_cast<T>(static_cast<A>(y[i]) * static_cast<A>(x[i])); }
    }
};

} // namespace pulse::reference
