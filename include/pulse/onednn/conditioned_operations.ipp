#pragma once

#include <algorithm>
#include <cstdint>

#include <pulse/core/separate.hpp>
#include <pulse/onednn/activations.hpp>
#include <pulse/onednn/conditioned_operations.hpp>
#include <pulse/onednn/lanes.hpp>
#include <pulse/onednn/layer_norm.hpp>
#include <pulse/onednn/parallel.hpp>
#include <pulse/onednn/pointwise.hpp>
#include <pulse/onednn/rotary.hpp>
#include <pulse/reference/embedding.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/shape_checks.hpp>

namespace pulse::onednn {

PULSE_HOST_INLINE void conditioned_operations::adaptive_norm(const adaptive_norm_shape& s, int batch, const float* x,
                                                             const float* gamma, const float* beta, const float* scale,
                                                             const float* shift, float* y, float* statistics) {
    detail::check_adaptive_norm("adaptive_norm", s, batch);
    float* const slope = norm_.reserve(2 * std::int64_t{s.features});
    float* const offset = slope + s.features;
    for (int b = 0; b != batch; ++b) {
        join(s, b, gamma, beta, scale, slope, offset);
        for (int c = 0; c != s.features; ++c) { offset[c] += shift[b * s.stride + c]; }
        layer_norm_rows::forward(threads_, row_of(s), s.tokens, x + b * sample(s), slope, offset, y + b * sample(s),
                                 statistics + std::int64_t{2} * b * s.tokens);
    }
}

PULSE_HOST_INLINE void conditioned_operations::adaptive_norm_backward(
    const adaptive_norm_shape& s, int batch, const float* x, const float* gamma, const float* beta, const float* scale,
    const float* statistics, const float* dy, float* dx, gradient_place<float> dgamma, gradient_place<float> dbeta,
    float* dscale, float* dshift, into how) {
    detail::check_adaptive_norm("adaptive_norm_backward", s, batch);
    const std::int64_t n = s.features;
    float* const slope = norm_.reserve(4 * n + layer_norm_rows::workspace(row_of(s), s.tokens));
    float* const offset = slope + n;
    float* const to_slope = offset + n;
    float* const to_offset = to_slope + n;
    float* const gamma_sums = dgamma.begun(n);
    float* const beta_sums = dbeta.begun(n);
    for (int b = 0; b != batch; ++b) {
        join(s, b, gamma, beta, scale, slope, offset);
        layer_norm_rows::backward(threads_, row_of(s), s.tokens, x + b * sample(s), slope,
                                  statistics + std::int64_t{2} * b * s.tokens, dy + b * sample(s), dx + b * sample(s),
                                  {to_slope, into::write}, {to_offset, into::write}, how, to_offset + n);
        for (int c = 0; c != s.features; ++c) {
            const std::int64_t at = b * s.stride + c;
            const float factor = scale != nullptr ? 1.0F + scale[at] : 1.0F;
            dshift[at] = to_offset[c];
            if (scale != nullptr) {
                dscale[at] = gamma != nullptr ? to_slope[c] * gamma[c] + to_offset[c] * beta[c] : to_slope[c];
            }
            if (dgamma.wanted()) {
                gamma_sums[c] += to_slope[c] * factor;
                beta_sums[c] += to_offset[c] * factor;
            }
        }
    }
}

PULSE_HOST_INLINE void conditioned_operations::gelu_tanh(std::int64_t n, const float* x, float* y) {
    activate<gelu_tanh_at>(threads_, n, x, y);
}

PULSE_HOST_INLINE void conditioned_operations::gelu_tanh_backward(std::int64_t n, const float* x, const float* dy,
                                                                  float* dx, into how) {
    activate_backward<gelu_tanh_at>(threads_, n, x, dy, dx, how);
}

PULSE_HOST_INLINE void conditioned_operations::rotary(const rotary_shape& s, int batch, const float* x, float* y) {
    table_of("rotary", s, batch).turn(threads_, batch, 1.0F, x, y);
}

PULSE_HOST_INLINE void conditioned_operations::rotary_backward(const rotary_shape& s, int batch, const float* dy,
                                                               float* dx) {
    table_of("rotary_backward", s, batch).turn(threads_, batch, -1.0F, dy, dx);
}

PULSE_HOST_INLINE void conditioned_operations::embedding(const embedding_shape& s, std::int64_t rows,
                                                         const float* indices, const float* table, float* y) {
    for (std::int64_t r = 0; r != rows; ++r) {
        std::copy_n(table + reference::embedding_row(s, indices[r]) * s.features, s.features, y + r * s.features);
    }
}

PULSE_HOST_INLINE void conditioned_operations::embedding_backward_weight(const embedding_shape& s, std::int64_t rows,
                                                                         const float* indices, const float* dy,
                                                                         gradient_place<float> dtable) {
    float* const to = dtable.begun(std::int64_t{s.entries} * s.features);
    for (std::int64_t r = 0; r != rows; ++r) {
        add_row(1, s.features, dy + r * s.features, to + reference::embedding_row(s, indices[r]) * s.features);
    }
}

PULSE_HOST_INLINE void conditioned_operations::replace_padding(int batch, int tokens, int features, const float* mask,
                                                               const float* padding, float* y) {
    parallel_for(threads_, std::int64_t{batch} * tokens, [=](int, std::int64_t r) {
        if (mask[r] == 0.0F) { std::copy_n(padding + r % tokens * features, features, y + r * features); }
    });
}

PULSE_HOST_INLINE void conditioned_operations::replace_padding_backward(int batch, int tokens, int features,
                                                                        const float* mask, const float* dy, float* dx,
                                                                        gradient_place<float> dpadding) {
    float* const to = dpadding.begun(std::int64_t{tokens} * features);
    parallel_for(threads_, tokens, [=](int, std::int64_t t) {
        for (std::int64_t r = t; r < std::int64_t{batch} * tokens; r += tokens) {
            if (mask[r] == 0.0F) {
                add_row(1, features, dy + r * features, to + t * features);
                std::fill_n(dx + r * features, features, 0.0F);
            } else if (dx != dy) {
                std::copy_n(dy + r * features, features, dx + r * features);
            }
        }
    });
}

PULSE_HOST_INLINE void conditioned_operations::scale(std::int64_t n, float factor, const float* x, float* y) {
    for_elements(threads_, n, [=]<int W>(std::int64_t i) { store<W>(load<W>(x + i) * factor, y + i); });
}

PULSE_HOST_INLINE std::int64_t conditioned_operations::conditioned_scratch_bytes() const noexcept {
    std::int64_t bytes = norm_.bytes();
    for (const rotary_table& table : tables_) { bytes += table.bytes(); }
    return bytes;
}

PULSE_HOST_INLINE void conditioned_operations::join(const adaptive_norm_shape& s, int b, const float* gamma,
                                                    const float* beta, const float* scale, float* slope,
                                                    float* offset) noexcept {
    for (int c = 0; c != s.features; ++c) {
        const float factor = scale != nullptr ? 1.0F + scale[b * s.stride + c] : 1.0F;
        slope[c] = gamma != nullptr ? gamma[c] * factor : factor;
        offset[c] = gamma != nullptr ? beta[c] * factor : 0.0F;
    }
}

PULSE_HOST_INLINE const rotary_table& conditioned_operations::table_of(const char* operation, const rotary_shape& s,
                                                                       int batch) {
    detail::check_rotary(operation, s, batch);
    for (const rotary_table& table : tables_) {
        if (table.shape() == s) { return table; }
    }
    return tables_.emplace_back(s);
}

} // namespace pulse::onednn
