#pragma once

#include <cstdint>
#include <deque>

#include <pulse/core/separate.hpp>
#include <pulse/onednn/buffer.hpp>
#include <pulse/onednn/rotary.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::onednn {

/// The operations of transformers with text, labels and positions: a part of onednn::backend.
class conditioned_operations {
public:
    explicit conditioned_operations(int threads) : threads_{threads} {}

    /// Folds a sample's modulation and the affine into one affine for layer_norm_rows.
    void adaptive_norm(const adaptive_norm_shape& s, int batch, const float* x, const float* gamma, const float* beta,
                       const float* scale, const float* shift, float* y, float* statistics);
    void adaptive_norm_backward(const adaptive_norm_shape& s, int batch, const float* x, const float* gamma,
                                const float* beta, const float* scale, const float* statistics, const float* dy,
                                float* dx, gradient_place<float> dgamma, gradient_place<float> dbeta, float* dscale,
                                float* dshift, into how);

    void gelu_tanh(std::int64_t n, const float* x, float* y);
    void gelu_tanh_backward(std::int64_t n, const float* x, const float* dy, float* dx, into how);

    void rotary(const rotary_shape& s, int batch, const float* x, float* y);
    void rotary_backward(const rotary_shape& s, int batch, const float* dy, float* dx);

    void embedding(const embedding_shape& s, std::int64_t rows, const float* indices, const float* table, float* y);
    void embedding_backward_weight(const embedding_shape& s, std::int64_t rows, const float* indices, const float* dy,
                                   gradient_place<float> dtable);

    void replace_padding(int batch, int tokens, int features, const float* mask, const float* padding, float* y);
    /// Each position's vector belongs to one worker, which adds the samples in order.
    void replace_padding_backward(int batch, int tokens, int features, const float* mask, const float* dy, float* dx,
                                  gradient_place<float> dpadding);

    void scale(std::int64_t n, float factor, const float* x, float* y);

protected:
    [[nodiscard]] std::int64_t conditioned_scratch_bytes() const noexcept;

private:
    [[nodiscard]] static layer_norm_shape row_of(const adaptive_norm_shape& s) noexcept {
        return {s.features, s.epsilon};
    }
    [[nodiscard]] static std::int64_t sample(const adaptive_norm_shape& s) noexcept {
        return std::int64_t{s.tokens} * s.features;
    }
    /// slope = gamma (1 + scale), offset = beta (1 + scale).
    static void join(const adaptive_norm_shape& s, int b, const float* gamma, const float* beta, const float* scale,
                     float* slope, float* offset) noexcept;
    [[nodiscard]] const rotary_table& table_of(const char* operation, const rotary_shape& s, int batch);

    int threads_;
    buffer norm_{};
    std::deque<rotary_table> tables_{};
};

} // namespace pulse::onednn

#ifndef PULSE_SEPARATE_HOST
#include <pulse/onednn/conditioned_operations.ipp> // IWYU pragma: keep
#endif
