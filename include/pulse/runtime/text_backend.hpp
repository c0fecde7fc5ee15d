#pragma once

#include <cstdint>

#include <pulse/runtime/backend.hpp>

namespace pulse {

/// Attention of tokens to those of the same text; q, k, v and o are [batch][tokens][heads * head_size].
struct masked_attention_shape {
    int tokens{};
    int heads{};
    int head_size{};
    double scale{1.0}; ///< factor of q k^T
    bool causal{};     ///< whether a token attends only to itself and earlier tokens

    [[nodiscard]] constexpr int width() const noexcept { return heads * head_size; }
    /// The number of distances between two tokens, which range from 1 - tokens to tokens - 1.
    [[nodiscard]] constexpr int distances() const noexcept { return 2 * tokens - 1; }
    [[nodiscard]] constexpr bool operator==(const masked_attention_shape&) const = default;
};

/// Operations that forward-only text encoders need besides a backend; a user's backend that only trains may omit them.
///
/// - masked_attention: o = softmax(scale q k^T + bias) v for every head. bias [distances][heads] for key j and query i
///   is at j - i + tokens - 1; null: none. Keys whose mask [batch][tokens] is 0 get the lowest score there is, so they
///   count only if a text has no others; a null mask has no zeros. Keys after a causal query never count.
/// - rms_norm: y = gamma x / sqrt(mean(x^2) + eps) over the features of every row (Zhang and Sennrich 2019).
/// - quick_gelu: y = x * sigmoid(1.702 x) (Hendrycks and Gimpel 2016); y may be x.
/// - gate: y *= x over n elements.
template <class B>
concept text_backend = backend<B> &&
    requires(B& b, const typename B::scalar* x, typename B::scalar* y, const typename B::accumulator* a,
             const masked_attention_shape& att, const layer_norm_shape& norm, int batch, std::int64_t rows) {
    // q, k, v, mask, bias, o
    b.masked_attention(att, batch, x, x, x, a, x, y);
    // x, gamma, y
    b.rms_norm(norm, rows, x, x, y);
    b.quick_gelu(rows, x, y);
    b.gate(rows, x, y);
};

} // namespace pulse
