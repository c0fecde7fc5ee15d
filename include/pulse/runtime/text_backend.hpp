#pragma once

#include <cstdint>

#include <pulse/runtime/backend.hpp>

namespace pulse {

/// Attention of tokens to those of their own text; q, k, v and o are [batch][tokens][heads * head_size].
struct masked_attention_shape {
    int tokens{};
    int heads{};
    int head_size{};
    double scale{1.0}; ///< what q k^T is multiplied by
    bool causal{};     ///< whether a token attends to itself and those before it alone

    [[nodiscard]] constexpr int width() const noexcept { return heads * head_size; }
    /// The distances of two tokens, from 1 - tokens to tokens - 1.
    [[nodiscard]] constexpr int distances() const noexcept { return 2 * tokens - 1; }
    [[nodiscard]] constexpr bool operator==(const masked_attention_shape&) const = default;
};

/// What text encoders need besides, which only run forward: a user's backend that trains need not have it.
///
/// - masked_attention: o = softmax(scale q k^T + bias) v for every head. bias [distances][heads] is that of key j and
///   query i at j - i + tokens - 1, null: none. Keys whose mask [batch][tokens] is 0 have the lowest score that there
///   is, so that they count where a text has no other; a null mask has no zeros. Those behind a causal query never
///   count.
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
