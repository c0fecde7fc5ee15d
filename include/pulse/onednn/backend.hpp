#pragma once

#include <cstdint>

#include <pulse/core/separate.hpp>
#include <pulse/onednn/adamw.hpp>
#include <pulse/onednn/buffer.hpp>
#include <pulse/onednn/conditioned_operations.hpp>
#include <pulse/onednn/convolution_cache.hpp>
#include <pulse/onednn/library.hpp>
#include <pulse/onednn/picture_operations.hpp>
#include <pulse/onednn/text_operations.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/picture_backend.hpp>
#include <pulse/runtime/text_backend.hpp>

namespace pulse::onednn {

/// The float backend of the host: matrix products and convolutions by oneDNN, the rest by hand.
///
/// One object serves one thread at a time and uses `threads` OpenMP threads; objects share no mutable state. The first
/// use of a shape creates primitives and grows the scratch; later uses do not allocate.
class backend : public text_operations, public conditioned_operations, public picture_operations {
public:
    using scalar = float;
    using accumulator = float;

    /// Throws pulse::input_error when threads < 1.
    explicit backend(int threads = 1);

    [[nodiscard]] int threads() const noexcept { return threads_; }
    /// How an optimizer updates weights.
    [[nodiscard]] fused_adamw update_rule() const noexcept { return {threads_}; }

    void conv2d(const conv2d_shape& s, int batch, const float* x, const float* weight, const float* bias, float* y,
                into how);
    void conv2d_backward_input(const conv2d_shape& s, int batch, const float* dy, const float* weight, float* dx,
                               into how);
    void conv2d_backward_weight(const conv2d_shape& s, int batch, const float* x, const float* dy,
                                gradient_place<float> dweight, gradient_place<float> dbias);

    void conv2d_pair(const conv2d_shape& s, int second, int batch, const float* xa, const float* xb,
                     const float* weight, const float* bias, float* y, into how);
    /// `how` applies to both gradients.
    void conv2d_pair_backward_input(const conv2d_shape& s, int second, int batch, const float* dy, const float* weight,
                                    float* dxa, float* dxb, into how);
    void conv2d_pair_backward_weight(const conv2d_shape& s, int second, int batch, const float* xa, const float* xb,
                                     const float* dy, gradient_place<float> dweight, gradient_place<float> dbias);

    void linear(const linear_shape& s, std::int64_t rows, const float* x, const float* weight, const float* bias,
                float* y, into how);
    void linear_backward_input(const linear_shape& s, std::int64_t rows, const float* dy, const float* weight,
                               float* dx, into how);
    void linear_backward_weight(const linear_shape& s, std::int64_t rows, const float* x, const float* dy,
                                gradient_place<float> dweight, gradient_place<float> dbias);

    void group_norm(const group_norm_shape& s, int batch, const float* xa, const float* xb, const float* gamma,
                    const float* beta, float* y, float* statistics);
    void group_norm_backward(const group_norm_shape& s, int batch, const float* xa, const float* xb, const float* gamma,
                             const float* beta, const float* statistics, const float* dy, float* dxa, float* dxb,
                             gradient_place<float> dgamma, gradient_place<float> dbeta, into how);

    void attention(const attention_shape& s, int batch, const float* q, const float* k, const float* v, float* o,
                   float* lse);
    void attention_backward(const attention_shape& s, int batch, const float* q, const float* k, const float* v,
                            const float* o, const float* lse, const float* dout, float* dq, float* dk, float* dv);

    void silu(std::int64_t n, const float* x, float* y);
    void silu_backward(std::int64_t n, const float* x, const float* dy, float* dx, into how);
    void add(std::int64_t n, const float* x, float* y);
    void copy(std::int64_t n, const float* x, float* y);
    void fill(std::int64_t n, float value, float* y);

    void sum_rows(std::int64_t rows, std::int64_t features, const float* x, gradient_place<float> y);

    void add_per_sample(int batch, int pixels, int channels, const float* t, float* y);
    void sum_pixels(int batch, int pixels, int channels, const float* y, float* t);
    void upsample_nearest(int batch, int height, int width, int channels, const float* x, float* y);
    void upsample_nearest_backward(int batch, int height, int width, int channels, const float* dy, float* dx);
    void sinusoid(int batch, int features, bool flip, double shift, const float* timesteps, float* e);

    /// Invalidates all reordered weights; must be called after parameters were written, or moved to other memory.
    void weights_changed() noexcept { ++epoch_; }
    /// Bytes of the shared scratch and of reordered weights.
    [[nodiscard]] std::int64_t scratch_bytes() const noexcept;

private:
    static constexpr int narrow_head = 32; ///< largest head size that runs without matrix products

    [[nodiscard]] static std::int64_t elements(int pixels, int channels) noexcept {
        return std::int64_t{pixels} * channels;
    }
    template <class T>
    [[nodiscard]] static T* second_of(const group_norm_shape& s, T* x, std::int64_t b) noexcept {
        return s.second_channels != 0 ? x + b * elements(s.pixels, s.second_channels) : nullptr;
    }
    /// Where the second source's weights start.
    [[nodiscard]] static std::int64_t second_at(const conv2d_shape& s, int second) noexcept {
        return std::int64_t{s.in_channels - second} * s.kernel * s.kernel;
    }
    [[nodiscard]] static std::int64_t rows_of(const conv2d_shape& s, int batch) noexcept {
        return std::int64_t{batch} * s.in_height * s.in_width;
    }

    [[nodiscard]] convolution& prepared(const convolution_key& key);
    void convolve(const conv2d_shape& s, int weight_channels, int batch, const float* x, const float* weight,
                  const float* bias, float* y, into how);
    void convolve_back(const conv2d_shape& s, int weight_channels, int batch, const float* dy, const float* weight,
                       float* dx, into how);
    void convolve_weight(const conv2d_shape& s, int weight_channels, int batch, const float* x, const float* dy,
                         gradient_place<float> dweight, gradient_place<float> dbias);

    /// `stride` is the distance between rows of the weight.
    void multiply(const linear_shape& s, int stride, std::int64_t rows, const float* x, const float* weight,
                  const float* bias, float* y, into how);
    void multiply_back(const linear_shape& s, int stride, std::int64_t rows, const float* dy, const float* weight,
                       float* dx, into how);
    void multiply_weight(const linear_shape& s, int stride, std::int64_t rows, const float* x, const float* dy,
                         gradient_place<float> dweight, gradient_place<float> dbias);

    /// Calls f(head, offset of the head in q, offset in k, offset in lse) for each head of each sample.
    template <class F>
    void over_heads(const attention_shape& s, int batch, const float* q, const float* k, const float* v, F f);
    template <class Head, class F>
    void over_heads_with(const attention_shape& s, int batch, const float* q, const float* k, const float* v, F f);

    int threads_;
    std::int64_t epoch_{};
    onednn_engine engine_{};
    convolution_cache convolutions_{};
    buffer scratch_{};
    buffer sum_{};
    basic_buffer<double> sums_{};
};

static_assert(picture_backend<backend>, "pulse: onednn::backend has every operation of a picture_backend");
static_assert(text_backend<backend>, "pulse: onednn::backend has every operation of a text_backend");

} // namespace pulse::onednn

#ifndef PULSE_SEPARATE_HOST
#include <pulse/onednn/backend.ipp> // IWYU pragma: keep
#endif
