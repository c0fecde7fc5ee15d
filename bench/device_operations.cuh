#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <pulse/cuda/engine_options.cuh>
#include <pulse/cuda/memory_space.cuh>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/linear_batch.hpp>
#include <pulse/runtime/residual_sums.hpp>

namespace pulse_bench {

/// y += x over n elements.
void add_floats(cudaStream_t stream, std::int64_t n, const float* x, float* y);

/// pulse::cuda::device_space with its one kernel behind a declaration.
struct operations_space : pulse::cuda::memory_space {
    template <class Each>
    class adder : public pulse::cuda::reduction_order {
    public:
        using reduction_order::reduction_order;

        void add(std::int64_t n, const Each* x, Each* y) const { add_floats(stream(), n, x, y); }
    };
};

/// pulse::cuda::backend in bfloat16 behind a declaration: its users do not need nvcc, which takes five times as long as
/// the host's compiler for a whole model, mostly for kernels that are the same for every model.
class device_operations {
public:
    using scalar = __nv_bfloat16;
    using accumulator = float;
    using space = operations_space;
    using T = scalar;
    using into = pulse::into;
    using gradient_place = pulse::gradient_place<float>;

    /// Works in its own stream, or in a given one that must outlive it.
    device_operations();
    explicit device_operations(cudaStream_t stream, const pulse::cuda::engine_options& options = {});
    device_operations(const device_operations&) = delete;
    device_operations& operator=(const device_operations&) = delete;
    ~device_operations();

    [[nodiscard]] cudaStream_t stream() const noexcept;
    void synchronize() const;
    void weights_changed() noexcept;
    [[nodiscard]] std::int64_t scratch_bytes() const noexcept;
    [[nodiscard]] std::string attention_report() const;

    void conv2d(const pulse::conv2d_shape& s, int batch, const T* x, const T* weight, const T* bias, T* y, into how,
                const T* residual = nullptr);
    void conv2d_per_sample(const pulse::conv2d_shape& s, int batch, const T* x, const T* weight, const T* bias,
                           const T* t, T* y);
    void conv2d_backward_input(const pulse::conv2d_shape& s, int batch, const T* dy, const T* weight, T* dx, into how);
    void conv2d_backward_weight(const pulse::conv2d_shape& s, int batch, const T* x, const T* dy,
                                gradient_place dweight, gradient_place dbias);
    void conv2d_pair(const pulse::conv2d_shape& s, int second, int batch, const T* xa, const T* xb, const T* weight,
                     const T* bias, T* y, into how);
    void conv2d_pair_backward_input(const pulse::conv2d_shape& s, int second, int batch, const T* dy, const T* weight,
                                    T* dxa, T* dxb, into how);
    void conv2d_pair_backward_weight(const pulse::conv2d_shape& s, int second, int batch, const T* xa, const T* xb,
                                     const T* dy, gradient_place dweight, gradient_place dbias);
    void linear(const pulse::linear_shape& s, std::int64_t rows, const T* x, const T* weight, const T* bias, T* y,
                into how, const T* residual = nullptr);
    void linear_backward_input(const pulse::linear_shape& s, std::int64_t rows, const T* dy, const T* weight, T* dx,
                               into how);
    void linear_backward_weight(const pulse::linear_shape& s, std::int64_t rows, const T* x, const T* dy,
                                gradient_place dweight, gradient_place dbias);
    void linear_batch(const pulse::linear_batch_shape& s, std::int64_t rows, const T* x, const T* weight, T* y,
                      into how);
    void linear_batch_backward_weight(const pulse::linear_batch_shape& s, std::int64_t rows, const T* x, const T* dy,
                                      gradient_place dweight);
    void group_norm(const pulse::group_norm_shape& s, int batch, const T* xa, const T* xb, const T* gamma,
                    const T* beta, T* y, float* statistics);
    void group_norm_backward(const pulse::group_norm_shape& s, int batch, const T* xa, const T* xb, const T* gamma,
                             const T* beta, const float* statistics, const T* dy, T* dxa, T* dxb, gradient_place dgamma,
                             gradient_place dbeta, into how, const T* residual = nullptr);
    void attention(const pulse::attention_shape& s, int batch, const T* q, const T* k, const T* v, T* o, float* lse);
    void attention_backward(const pulse::attention_shape& s, int batch, const T* q, const T* k, const T* v, const T* o,
                            const float* lse, const T* dout, T* dq, T* dk, T* dv);
    void layer_norm(const pulse::layer_norm_shape& s, std::int64_t rows, const T* x, const T* gamma, const T* beta,
                    T* y, float* statistics);
    void layer_norm_backward(const pulse::layer_norm_shape& s, std::int64_t rows, const T* x, const T* gamma,
                             const float* statistics, const T* dy, T* dx, gradient_place dgamma, gradient_place dbeta,
                             into how, const T* residual = nullptr);
    void geglu(std::int64_t rows, int features, const T* x, T* y);
    void geglu_backward(std::int64_t rows, int features, const T* x, const T* dy, T* dx);
    void gelu(std::int64_t n, const T* x, T* y);
    void gelu_backward(std::int64_t n, const T* x, const T* dy, T* dx, into how);
    void gelu_tanh(std::int64_t n, const T* x, T* y);
    void gelu_tanh_backward(std::int64_t n, const T* x, const T* dy, T* dx, into how);
    void silu(std::int64_t n, const T* x, T* y);
    void silu_backward(std::int64_t n, const T* x, const T* dy, T* dx, into how);
    void add(std::int64_t n, const T* x, T* y);
    void copy(std::int64_t n, const T* x, T* y);
    void fill(std::int64_t n, float value, T* y);
    void sum_rows(std::int64_t rows, std::int64_t features, const T* x, gradient_place sums);
    void copy_rows(std::int64_t rows, std::int64_t n, const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride);
    void add_per_sample(int batch, int pixels, int channels, const T* t, T* y);
    void sum_pixels(int batch, int pixels, int channels, const T* y, T* t);
    void upsample_nearest(int batch, int height, int width, int channels, const T* x, T* y);
    void upsample_nearest_backward(int batch, int height, int width, int channels, const T* dy, T* dx);
    void sinusoid(int batch, int features, bool flip, double shift, const float* timesteps, T* e);

    // No UNet calls these: they are not defined.
    void patches_to_image(const pulse::patch_shape& s, int batch, const T* x, T* y);
    void image_to_patches(const pulse::patch_shape& s, int batch, const T* x, T* y);
    void adaptive_norm(const pulse::adaptive_norm_shape& s, int batch, const T* x, const T* gamma, const T* beta,
                       const T* scale, const T* shift, T* y, float* statistics);
    void adaptive_norm_backward(const pulse::adaptive_norm_shape& s, int batch, const T* x, const T* gamma,
                                const T* beta, const T* scale, const float* statistics, const T* dy, T* dx,
                                gradient_place dgamma, gradient_place dbeta, T* dscale, T* dshift, into how,
                                const T* residual = nullptr);
    void rotary(const pulse::rotary_shape& s, int batch, const T* x, T* y);
    void rotary_backward(const pulse::rotary_shape& s, int batch, const T* dy, T* dx);
    void add_resampled(const pulse::resample_shape& s, int batch, const T* x, T* y);
    void resampled_sums(const pulse::resample_shape& s, int batch, const T* dy, gradient_place dx);
    void embedding(const pulse::embedding_shape& s, std::int64_t rows, const float* indices, const T* table, T* y);
    void embedding_backward_weight(const pulse::embedding_shape& s, std::int64_t rows, const float* indices,
                                   const T* dy, gradient_place dtable);
    void replace_padding(int batch, int tokens, int features, const float* mask, const T* padding, T* y);
    void replace_padding_backward(int batch, int tokens, int features, const float* mask, const T* dy, T* dx,
                                  gradient_place dpadding);
    void scale(std::int64_t n, float factor, const T* x, T* y);

private:
    struct kernels;
    std::unique_ptr<kernels> math_;
};
static_assert(pulse::backend<device_operations> && pulse::batches_linear<device_operations> &&
              pulse::sums_residuals<device_operations>);

} // namespace pulse_bench
