#pragma once

#include <cstdint>

#include <pulse/core/separate.hpp>
#include <pulse/onednn/lanes.hpp>
#include <pulse/onednn/layer_norm.hpp>
#include <pulse/onednn/masked_attention.hpp>
#include <pulse/onednn/parallel.hpp>
#include <pulse/onednn/pointwise.hpp>
#include <pulse/onednn/text_operations.hpp>
#include <pulse/runtime/shape_checks.hpp>
#include <pulse/runtime/text_backend.hpp>

namespace pulse::onednn {

PULSE_HOST_INLINE void text_operations::masked_attention(const masked_attention_shape& s, int batch, const float* q,
                                                         const float* k, const float* v, const float* mask,
                                                         const float* bias, float* o) {
    detail::check_attention("masked_attention", {s.tokens, s.heads, s.head_size}, batch);
    use_threads(threads_);
    const std::int64_t work = (masked_head::workspace(s) + 15) / 16 * 16;
    float* const scratch = scores_.reserve(threads_ * work);
    parallel_for(threads_, std::int64_t{batch} * s.heads, [&](int worker, std::int64_t i) {
        const std::int64_t sample = i / s.heads;
        const std::int64_t head = i % s.heads;
        const std::int64_t at = sample * s.tokens * s.width() + head * s.head_size;
        masked_head::forward(s, q + at, k + at, v + at, mask != nullptr ? mask + sample * s.tokens : nullptr,
                             bias != nullptr ? bias + head : nullptr, o + at, scratch + worker * work);
    });
}

PULSE_HOST_INLINE void text_operations::rms_norm(const layer_norm_shape& s, std::int64_t rows, const float* x,
                                                 const float* gamma, float* y) {
    detail::check_rows("rms_norm", rows, s.features);
    layer_norm_rows::forward_rms(threads_, s, rows, x, gamma, y);
}

PULSE_HOST_INLINE void text_operations::quick_gelu(std::int64_t n, const float* x, float* y) {
    for_elements(threads_, n, [=]<int W>(std::int64_t i) {
        const floats<W> value = load<W>(x + i);
        store<W>(value / (1.0F + bounded_exp<W>(value * -1.702F)), y + i);
    });
}

PULSE_HOST_INLINE void text_operations::gate(std::int64_t n, const float* x, float* y) {
    for_elements(threads_, n, [=]<int W>(std::int64_t i) { store<W>(load<W>(y + i) * load<W>(x + i), y + i); });
}

} // namespace pulse::onednn
