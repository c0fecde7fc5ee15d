#pragma once

#include <cstdint>

#include <pulse/core/separate.hpp>
#include <pulse/onednn/buffer.hpp>
#include <pulse/onednn/token_operations.hpp>
#include <pulse/runtime/text_backend.hpp>

namespace pulse::onednn {

/// The operations of text encoders and transformers: a part of onednn::backend.
class text_operations : public token_operations {
public:
    explicit text_operations(int threads) : token_operations{threads}, threads_{threads} {}

    void masked_attention(const masked_attention_shape& s, int batch, const float* q, const float* k, const float* v,
                          const float* mask, const float* bias, float* o);

    void rms_norm(const layer_norm_shape& s, std::int64_t rows, const float* x, const float* gamma, float* y);
    void quick_gelu(std::int64_t n, const float* x, float* y);
    void gate(std::int64_t n, const float* x, float* y);

protected:
    [[nodiscard]] std::int64_t token_scratch_bytes() const noexcept {
        return token_operations::token_scratch_bytes() + scores_.bytes();
    }

private:
    int threads_;
    buffer scores_{};
};

} // namespace pulse::onednn

#ifndef PULSE_SEPARATE_HOST
#include <pulse/onednn/text_operations.ipp> // IWYU pragma: keep
#endif
