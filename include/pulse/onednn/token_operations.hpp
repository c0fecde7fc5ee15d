#pragma once

#include <cstdint>

#include <pulse/core/separate.hpp>
#include <pulse/onednn/buffer.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::onednn {

/// The operations of transformers that need no matrix product: a part of onednn::backend.
class token_operations {
public:
    explicit token_operations(int threads) : threads_{threads} {}

    void layer_norm(const layer_norm_shape& s, std::int64_t rows, const float* x, const float* gamma, const float* beta,
                    float* y, float* statistics);
    void layer_norm_backward(const layer_norm_shape& s, std::int64_t rows, const float* x, const float* gamma,
                             const float* statistics, const float* dy, float* dx, gradient_place<float> dgamma,
                             gradient_place<float> dbeta, into how);

    void gelu(std::int64_t n, const float* x, float* y);
    void gelu_backward(std::int64_t n, const float* x, const float* dy, float* dx, into how);
    void geglu(std::int64_t rows, int features, const float* x, float* y);
    void geglu_backward(std::int64_t rows, int features, const float* x, const float* dy, float* dx);

    void copy_rows(std::int64_t rows, std::int64_t n, const float* x, std::int64_t x_stride, float* y,
                   std::int64_t y_stride);
    void add_resampled(const resample_shape& s, int batch, const float* x, float* y);
    void resampled_sums(const resample_shape& s, int batch, const float* dy, gradient_place<float> dx);
    void patches_to_image(const patch_shape& s, int batch, const float* x, float* y);
    void image_to_patches(const patch_shape& s, int batch, const float* x, float* y);

protected:
    [[nodiscard]] std::int64_t token_scratch_bytes() const noexcept { return affine_.bytes(); }

private:
    /// Calls f(offset among the tokens, offset in the image, bytes) for every row of pixels of every patch.
    template <class F>
    void for_strips(const patch_shape& s, int batch, F f);

    int threads_;
    buffer affine_{};
};

} // namespace pulse::onednn

#ifndef PULSE_SEPARATE_HOST
#include <pulse/onednn/token_operations.ipp> // IWYU pragma: keep
#endif
