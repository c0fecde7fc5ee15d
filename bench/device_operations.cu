// The only file of bench_blocks that compiles the kernels of the backend.
#include "device_operations.cuh"

#include <pulse/cuda/backend.cuh>

namespace pulse_bench {

void add_floats(cudaStream_t stream, std::int64_t n, const float* x, float* y) {
    namespace cuda = pulse::cuda;
    cuda::add<float>({stream, cuda::properties_of(cuda::current_device()).multiprocessors, nullptr}, n, x, y);
}

struct device_operations::kernels : pulse::cuda::backend<pulse::cuda::bf16> {
    using backend::backend;
};

device_operations::device_operations() : math_{std::make_unique<kernels>()} {}
device_operations::device_operations(cudaStream_t stream, const pulse::cuda::engine_options& options) :
    math_{std::make_unique<kernels>(stream, options)} {}
device_operations::~device_operations() = default;

cudaStream_t device_operations::stream() const noexcept { return math_->stream(); }
void device_operations::synchronize() const { math_->synchronize(); }
void device_operations::weights_changed() noexcept { math_->weights_changed(); }
std::int64_t device_operations::scratch_bytes() const noexcept { return math_->scratch_bytes(); }
std::string device_operations::attention_report() const { return math_->attention_report(); }

void device_operations::conv2d(const pulse::conv2d_shape& s, int batch, const T* x, const T* weight, const T* bias,
                               T* y, into how, const T* residual) {
    math_->conv2d(s, batch, x, weight, bias, y, how, residual);
}
void device_operations::conv2d_per_sample(const pulse::conv2d_shape& s, int batch, const T* x, const T* weight,
                                          const T* bias, const T* t, T* y) {
    math_->conv2d_per_sample(s, batch, x, weight, bias, t, y);
}
void device_operations::conv2d_backward_input(const pulse::conv2d_shape& s, int batch, const T* dy, const T* weight,
                                              T* dx, into how) {
    math_->conv2d_backward_input(s, batch, dy, weight, dx, how);
}
void device_operations::conv2d_backward_weight(const pulse::conv2d_shape& s, int batch, const T* x, const T* dy,
                                               gradient_place dweight, gradient_place dbias) {
    math_->conv2d_backward_weight(s, batch, x, dy, dweight, dbias);
}
void device_operations::conv2d_pair(const pulse::conv2d_shape& s, int second, int batch, const T* xa, const T* xb,
                                    const T* weight, const T* bias, T* y, into how) {
    math_->conv2d_pair(s, second, batch, xa, xb, weight, bias, y, how);
}
void device_operations::conv2d_pair_backward_input(const pulse::conv2d_shape& s, int second, int batch, const T* dy,
                                                   const T* weight, T* dxa, T* dxb, into how) {
    math_->conv2d_pair_backward_input(s, second, batch, dy, weight, dxa, dxb, how);
}
void device_operations::conv2d_pair_backward_weight(const pulse::conv2d_shape& s, int second, int batch, const T* xa,
                                                    const T* xb, const T* dy, gradient_place dweight,
                                                    gradient_place dbias) {
    math_->conv2d_pair_backward_weight(s, second, batch, xa, xb, dy, dweight, dbias);
}
void device_operations::linear(const pulse::linear_shape& s, std::int64_t rows, const T* x, const T* weight,
                               const T* bias, T* y, into how, const T* residual) {
    math_->linear(s, rows, x, weight, bias, y, how, residual);
}
void device_operations::linear_backward_input(const pulse::linear_shape& s, std::int64_t rows, const T* dy,
                                              const T* weight, T* dx, into how) {
    math_->linear_backward_input(s, rows, dy, weight, dx, how);
}
void device_operations::linear_backward_weight(const pulse::linear_shape& s, std::int64_t rows, const T* x, const T* dy,
                                               gradient_place dweight, gradient_place dbias) {
    math_->linear_backward_weight(s, rows, x, dy, dweight, dbias);
}
void device_operations::linear_batch(const pulse::linear_batch_shape& s, std::int64_t rows, const T* x, const T* weight,
                                     T* y, into how) {
    math_->linear_batch(s, rows, x, weight, y, how);
}
void device_operations::linear_batch_backward_weight(const pulse::linear_batch_shape& s, std::int64_t rows, const T* x,
                                                     const T* dy, gradient_place dweight) {
    math_->linear_batch_backward_weight(s, rows, x, dy, dweight);
}
void device_operations::group_norm(const pulse::group_norm_shape& s, int batch, const T* xa, const T* xb,
                                   const T* gamma, const T* beta, T* y, float* statistics) {
    math_->group_norm(s, batch, xa, xb, gamma, beta, y, statistics);
}
void device_operations::group_norm_backward(const pulse::group_norm_shape& s, int batch, const T* xa, const T* xb,
                                            const T* gamma, const T* beta, const float* statistics, const T* dy, T* dxa,
                                            T* dxb, gradient_place dgamma, gradient_place dbeta, into how,
                                            const T* residual) {
    math_->group_norm_backward(s, batch, xa, xb, gamma, beta, statistics, dy, dxa, dxb, dgamma, dbeta, how, residual);
}
void device_operations::attention(const pulse::attention_shape& s, int batch, const T* q, const T* k, const T* v, T* o,
                                  float* lse) {
    math_->attention(s, batch, q, k, v, o, lse);
}
void device_operations::attention_backward(const pulse::attention_shape& s, int batch, const T* q, const T* k,
                                           const T* v, const T* o, const float* lse, const T* dout, T* dq, T* dk,
                                           T* dv) {
    math_->attention_backward(s, batch, q, k, v, o, lse, dout, dq, dk, dv);
}
void device_operations::layer_norm(const pulse::layer_norm_shape& s, std::int64_t rows, const T* x, const T* gamma,
                                   const T* beta, T* y, float* statistics) {
    math_->layer_norm(s, rows, x, gamma, beta, y, statistics);
}
void device_operations::layer_norm_backward(const pulse::layer_norm_shape& s, std::int64_t rows, const T* x,
                                            const T* gamma, const float* statistics, const T* dy, T* dx,
                                            gradient_place dgamma, gradient_place dbeta, into how, const T* residual) {
    math_->layer_norm_backward(s, rows, x, gamma, statistics, dy, dx, dgamma, dbeta, how, residual);
}
void device_operations::geglu(std::int64_t rows, int features, const T* x, T* y) { math_->geglu(rows, features, x, y); }
void device_operations::geglu_backward(std::int64_t rows, int features, const T* x, const T* dy, T* dx) {
    math_->geglu_backward(rows, features, x, dy, dx);
}
void device_operations::gelu(std::int64_t n, const T* x, T* y) { math_->gelu(n, x, y); }
void device_operations::gelu_backward(std::int64_t n, const T* x, const T* dy, T* dx, into how) {
    math_->gelu_backward(n, x, dy, dx, how);
}
void device_operations::gelu_tanh(std::int64_t n, const T* x, T* y) { math_->gelu_tanh(n, x, y); }
void device_operations::gelu_tanh_backward(std::int64_t n, const T* x, const T* dy, T* dx, into how) {
    math_->gelu_tanh_backward(n, x, dy, dx, how);
}
void device_operations::silu(std::int64_t n, const T* x, T* y) { math_->silu(n, x, y); }
void device_operations::silu_backward(std::int64_t n, const T* x, const T* dy, T* dx, into how) {
    math_->silu_backward(n, x, dy, dx, how);
}
void device_operations::add(std::int64_t n, const T* x, T* y) { math_->add(n, x, y); }
void device_operations::copy(std::int64_t n, const T* x, T* y) { math_->copy(n, x, y); }
void device_operations::fill(std::int64_t n, float value, T* y) { math_->fill(n, value, y); }
void device_operations::sum_rows(std::int64_t rows, std::int64_t features, const T* x, gradient_place sums) {
    math_->sum_rows(rows, features, x, sums);
}
void device_operations::copy_rows(std::int64_t rows, std::int64_t n, const T* x, std::int64_t x_stride, T* y,
                                  std::int64_t y_stride) {
    math_->copy_rows(rows, n, x, x_stride, y, y_stride);
}
void device_operations::add_per_sample(int batch, int pixels, int channels, const T* t, T* y) {
    math_->add_per_sample(batch, pixels, channels, t, y);
}
void device_operations::sum_pixels(int batch, int pixels, int channels, const T* y, T* t) {
    math_->sum_pixels(batch, pixels, channels, y, t);
}
void device_operations::upsample_nearest(int batch, int height, int width, int channels, const T* x, T* y) {
    math_->upsample_nearest(batch, height, width, channels, x, y);
}
void device_operations::upsample_nearest_backward(int batch, int height, int width, int channels, const T* dy, T* dx) {
    math_->upsample_nearest_backward(batch, height, width, channels, dy, dx);
}
void device_operations::sinusoid(int batch, int features, bool flip, double shift, const float* timesteps, T* e) {
    math_->sinusoid(batch, features, flip, shift, timesteps, e);
}

} // namespace pulse_bench
