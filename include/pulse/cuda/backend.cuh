#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/attentions.cuh>
#include <pulse/cuda/convolutions.cuh>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/engine_options.cuh>
#include <pulse/cuda/kernels/adaptive_norm.cuh>
#include <pulse/cuda/kernels/column_sums.cuh>
#include <pulse/cuda/kernels/embedding.cuh>
#include <pulse/cuda/kernels/geglu.cuh>
#include <pulse/cuda/kernels/group_norm.cuh>
#include <pulse/cuda/kernels/group_norm_backward.cuh>
#include <pulse/cuda/kernels/group_norm_pieces.cuh>
#include <pulse/cuda/kernels/layer_norm.cuh>
#include <pulse/cuda/kernels/layer_norm_backward.cuh>
#include <pulse/cuda/kernels/masked_attention.cuh>
#include <pulse/cuda/kernels/movement.cuh>
#include <pulse/cuda/kernels/patches.cuh>
#include <pulse/cuda/kernels/pointwise.cuh>
#include <pulse/cuda/kernels/posterior.cuh>
#include <pulse/cuda/kernels/resample.cuh>
#include <pulse/cuda/kernels/rms_norm.cuh>
#include <pulse/cuda/kernels/rotary.cuh>
#include <pulse/cuda/kernels/sinusoid.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/products.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/cuda/scratch.cuh>
#include <pulse/cuda/space.cuh>
#include <pulse/cuda/stream.cuh>
#include <pulse/cuda/wide_attention.cuh>
#include <pulse/plan/cuda_memory.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/linear_batch.hpp>
#include <pulse/runtime/picture_backend.hpp>
#include <pulse/runtime/residual_sums.hpp>
#include <pulse/runtime/shape_checks.hpp>
#include <pulse/runtime/text_backend.hpp>

namespace pulse::cuda {

template <class Precision>
class device_updates;

/// The stream of a rank. Throws input_error for a host-memory transport.
[[nodiscard]] inline cudaStream_t stream_of(const any_transport& rank) {
    if (rank.streams().work == nullptr) {
        throw input_error{"pulse: a host-memory transport has no device streams; use a device transport"};
    }
    return static_cast<cudaStream_t>(rank.streams().work);
}

/// The operations of pulse::text_backend on one CUDA device, under a precision policy (bf16, fp16, tf32, fp32).
///
/// Products use cuBLASLt, convolutions cuDNN, attention the engines that attention_options select, and the rest kernels
/// of pulse. Every operation enqueues its work on one stream and returns; pointers are to device memory. The first call
/// with a shape chooses engines and may grow the scratch, which waits for the stream; after that no operation allocates
/// or waits, and programs may be captured in CUDA graphs. While the stream is captured, an operation that would have to
/// allocate throws not_capturable instead.
///
/// An object may be used by one thread at a time, on the device that was current when it was made; objects share no
/// mutable state.
template <class Precision = bf16>
class backend {
public:
    using precision = Precision;
    using scalar = typename Precision::scalar;
    using accumulator = typename Precision::accumulator;
    using space = device_space;
    using T = scalar;
    /// Bytes of the tables of an optimizer that works with updates().
    static constexpr update_tables tables = cuda_tables;
    /// Upper bound of the scratch with default options.
    static constexpr backend_scratch most_scratch = cuda_scratch;

    /// Makes a stream of its own. Throws input_error on bad options.
    explicit backend(const engine_options& options = {}, const attention_options& attention = {}) :
        backend{std::make_optional<cuda::stream>(), nullptr, options, attention} {}
    /// Uses a given stream, which must outlive this object. If steps are captured, make it with cudaStreamNonBlocking:
    /// while a blocking stream is captured, no thread may use the default stream, as uploads do.
    explicit backend(cudaStream_t stream, const engine_options& options = {}, const attention_options& attention = {}) :
        backend{std::nullopt, stream, options, attention} {}

    /// A backend for a rank, on the rank's stream. Throws input_error for a host-memory transport.
    [[nodiscard]] static backend on(const any_transport& rank) { return backend{stream_of(rank)}; }

    [[nodiscard]] cudaStream_t stream() const noexcept { return on_.stream; }
    /// The memory operations of an optimizer of this backend's parameters; needs <pulse/cuda/device_updates.cuh>.
    [[nodiscard]] auto updates() const { return device_updates<Precision>{on_.stream}; }
    /// Blocks the calling thread until all work is done.
    void synchronize() const { check(cudaStreamSynchronize(on_.stream), "cudaStreamSynchronize"); }

    /// Here and below, a residual that is not null is added to instead of the result's old value.
    void conv2d(const conv2d_shape& s, int batch, const T* x, const T* weight, const T* bias, T* y, into how,
                const T* residual = nullptr) {
        pulse::detail::check_convolution("conv2d", s, batch);
        convolve(s, {0, s.in_channels}, batch, x, weight, bias, y, how, residual);
    }
    void conv2d_per_sample(const conv2d_shape& s, int batch, const T* x, const T* weight, const T* bias, const T* t,
                           T* y) {
        pulse::detail::check_convolution("conv2d_per_sample", s, batch);
        convolve(s, {0, s.in_channels}, batch, x, weight, bias, y, into::write, nullptr, t);
    }
    void conv2d_backward_input(const conv2d_shape& s, int batch, const T* dy, const T* weight, T* dx, into how) {
        pulse::detail::check_convolution("conv2d_backward_input", s, batch);
        convolve_back(s, {0, s.in_channels}, batch, dy, weight, dx, how);
    }
    void conv2d_backward_weight(const conv2d_shape& s, int batch, const T* x, const T* dy,
                                gradient_place<float> dweight, gradient_place<float> dbias) {
        pulse::detail::check_convolution("conv2d_backward_weight", s, batch);
        convolve_weight(s, {0, s.in_channels}, batch, x, dy, dweight, dbias);
    }

    void conv2d_pair(const conv2d_shape& s, int second, int batch, const T* xa, const T* xb, const T* weight,
                     const T* bias, T* y, into how) {
        pulse::detail::check_pair("conv2d_pair", s, second, batch);
        convolve(s.part(s.in_channels - second), {0, s.in_channels}, batch, xa, weight, bias, y, how);
        if (second != 0) { convolve(s.part(second), rest(s, second), batch, xb, weight, nullptr, y, into::add); }
    }
    /// `how` applies to both gradients.
    void conv2d_pair_backward_input(const conv2d_shape& s, int second, int batch, const T* dy, const T* weight, T* dxa,
                                    T* dxb, into how) {
        pulse::detail::check_pair("conv2d_pair_backward_input", s, second, batch);
        convolve_back(s.part(s.in_channels - second), {0, s.in_channels}, batch, dy, weight, dxa, how);
        if (second != 0) { convolve_back(s.part(second), rest(s, second), batch, dy, weight, dxb, how); }
    }
    void conv2d_pair_backward_weight(const conv2d_shape& s, int second, int batch, const T* xa, const T* xb,
                                     const T* dy, gradient_place<float> dweight, gradient_place<float> dbias) {
        pulse::detail::check_pair("conv2d_pair_backward_weight", s, second, batch);
        convolve_weight(s.part(s.in_channels - second), {0, s.in_channels}, batch, xa, dy, dweight, dbias);
        if (second != 0) { convolve_weight(s.part(second), rest(s, second), batch, xb, dy, dweight, nullptr); }
    }

    void linear(const linear_shape& s, std::int64_t rows, const T* x, const T* weight, const T* bias, T* y, into how,
                const T* residual = nullptr) {
        pulse::detail::check_linear("linear", s, rows);
        products_.forward(on_, scratch_, s, s.in_features, rows, x, weight, bias, y, how, residual);
    }
    void linear_backward_input(const linear_shape& s, std::int64_t rows, const T* dy, const T* weight, T* dx,
                               into how) {
        pulse::detail::check_linear("linear_backward_input", s, rows);
        products_.backward_input(on_, scratch_, s, s.in_features, rows, dy, weight, dx, how);
    }
    void linear_backward_weight(const linear_shape& s, std::int64_t rows, const T* x, const T* dy,
                                gradient_place<float> dweight, gradient_place<float> dbias) {
        pulse::detail::check_linear("linear_backward_weight", s, rows);
        products_.backward_weight(on_, scratch_, s, s.in_features, rows, x, dy, dweight, dbias);
    }
    void linear_batch(const linear_batch_shape& s, std::int64_t rows, const T* x, const T* weight, T* y, into how) {
        pulse::detail::check_linear("linear_batch", s, rows);
        products_.forward(on_, scratch_, s, rows, x, weight, y, how);
    }
    void linear_batch_backward_weight(const linear_batch_shape& s, std::int64_t rows, const T* x, const T* dy,
                                      gradient_place<float> dweight) {
        pulse::detail::check_linear("linear_batch_backward_weight", s, rows);
        products_.backward_weight(on_, scratch_, s, rows, x, dy, dweight);
    }

    void group_norm(const group_norm_shape& s, int batch, const T* xa, const T* xb, const T* gamma, const T* beta, T* y,
                    float* statistics) {
        cuda::group_norm(with(group_norm_scratch_bytes(s, batch)), s, batch, xa, xb, gamma, beta, y, statistics);
    }
    void group_norm_statistics(const group_norm_shape& s, int batch, const T* x, float* statistics) {
        cuda::group_norm_statistics(with(group_norm_scratch_bytes(s, batch)), s, batch, x, statistics);
    }
    void group_norm_rows(const group_norm_shape& s, int rows, int width, const T* x, const T* gamma, const T* beta,
                         const float* statistics, T* y, std::int64_t y_stride) {
        cuda::group_norm_rows(on_, s, rows, width, x, gamma, beta, statistics, y, y_stride);
    }
    void posterior(std::int64_t pixels, int channels, float factor, const T* moments, const T* noise, T* z) {
        cuda::posterior(on_, pixels, channels, factor, moments, noise, z);
    }
    void group_norm_backward(const group_norm_shape& s, int batch, const T* xa, const T* xb, const T* gamma,
                             const T* beta, const float* statistics, const T* dy, T* dxa, T* dxb,
                             gradient_place<float> dgamma, gradient_place<float> dbeta, into how,
                             const T* residual = nullptr) {
        cuda::group_norm_backward(with(group_norm_backward_scratch_bytes(s, batch)), s, batch, xa, xb, gamma, beta,
                                  statistics, dy, dxa, dxb, dgamma, dbeta, how, residual);
    }

    void attention(const attention_shape& s, int batch, const T* q, const T* k, const T* v, T* o, float* lse) {
        if (s.head_size > most_fma_head_size) {
            return wide_attention_.forward(on_, scratch_, products_, s, batch, q, k, v, o, lse);
        }
        attentions_.forward(on_, scratch_, s, batch, q, k, v, o, lse);
    }
    void attention_backward(const attention_shape& s, int batch, const T* q, const T* k, const T* v, const T* o,
                            const float* lse, const T* dout, T* dq, T* dk, T* dv) {
        attentions_.backward(on_, scratch_, s, batch, q, k, v, o, lse, dout, dq, dk, dv);
    }

    void layer_norm(const layer_norm_shape& s, std::int64_t rows, const T* x, const T* gamma, const T* beta, T* y,
                    float* statistics) {
        cuda::layer_norm(on_, s, rows, x, gamma, beta, y, statistics);
    }
    void layer_norm_backward(const layer_norm_shape& s, std::int64_t rows, const T* x, const T* gamma,
                             const float* statistics, const T* dy, T* dx, gradient_place<float> dgamma,
                             gradient_place<float> dbeta, into how, const T* residual = nullptr) {
        cuda::layer_norm_backward(with(layer_norm_backward_scratch_bytes(s, rows)), s, rows, x, gamma, statistics, dy,
                                  dx, dgamma, dbeta, how, residual);
    }

    void gelu(std::int64_t n, const T* x, T* y) { cuda::gelu(on_, n, x, y); }
    void gelu_backward(std::int64_t n, const T* x, const T* dy, T* dx, into how) {
        cuda::gelu_backward(on_, n, x, dy, dx, how);
    }
    void geglu(std::int64_t rows, int features, const T* x, T* y) { cuda::geglu(on_, rows, features, x, y); }
    void geglu_backward(std::int64_t rows, int features, const T* x, const T* dy, T* dx) {
        cuda::geglu_backward(on_, rows, features, x, dy, dx);
    }
    void silu(std::int64_t n, const T* x, T* y) { cuda::silu(on_, n, x, y); }
    void silu_backward(std::int64_t n, const T* x, const T* dy, T* dx, into how) {
        cuda::silu_backward(on_, n, x, dy, dx, how);
    }
    void add(std::int64_t n, const T* x, T* y) { cuda::add(on_, n, x, y); }
    void copy(std::int64_t n, const T* x, T* y) { cuda::copy(on_, n, x, y); }
    void fill(std::int64_t n, float value, T* y) { cuda::fill(on_, n, value, y); }
    void sum_rows(std::int64_t rows, std::int64_t features, const T* x, gradient_place<float> sums) {
        const auto columns = static_cast<int>(features);
        add_bias_gradient(with(add_bias_gradient_scratch_bytes(rows, columns)), rows, columns, x, sums);
    }
    void copy_rows(std::int64_t rows, std::int64_t n, const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride) {
        cuda::copy_rows(on_, rows, n, x, x_stride, y, y_stride);
    }
    void patches_to_image(const patch_shape& s, int batch, const T* x, T* y) {
        cuda::patches_to_image(on_, s, batch, x, y);
    }
    void image_to_patches(const patch_shape& s, int batch, const T* x, T* y) {
        cuda::image_to_patches(on_, s, batch, x, y);
    }
    void add_resampled(const resample_shape& s, int batch, const T* x, T* y) {
        cuda::add_resampled(on_, s, batch, x, y);
    }
    void resampled_sums(const resample_shape& s, int batch, const T* dy, gradient_place<float> dx) {
        cuda::resampled_sums(on_, s, batch, dy, dx);
    }
    void add_per_sample(int batch, int pixels, int channels, const T* t, T* y) {
        cuda::add_per_sample(on_, batch, pixels, channels, t, y);
    }
    void sum_pixels(int batch, int pixels, int channels, const T* y, T* t) {
        cuda::sum_pixels(with(sum_pixels_scratch_bytes(batch, pixels, channels)), batch, pixels, channels, y, t);
    }
    void upsample_nearest(int batch, int height, int width, int channels, const T* x, T* y) {
        cuda::upsample_nearest(on_, batch, height, width, channels, x, y);
    }
    void upsample_nearest_backward(int batch, int height, int width, int channels, const T* dy, T* dx) {
        cuda::upsample_nearest_backward(on_, batch, height, width, channels, dy, dx);
    }
    void sinusoid(int batch, int features, bool flip, double shift, const float* timesteps, T* e) {
        cuda::sinusoid(on_, batch, features, flip, shift, timesteps, e);
    }

    void adaptive_norm(const adaptive_norm_shape& s, int batch, const T* x, const T* gamma, const T* beta,
                       const T* scale, const T* shift, T* y, float* statistics) {
        cuda::adaptive_norm(on_, s, batch, x, gamma, beta, scale, shift, y, statistics);
    }
    void adaptive_norm_backward(const adaptive_norm_shape& s, int batch, const T* x, const T* gamma, const T* beta,
                                const T* scale, const float* statistics, const T* dy, T* dx,
                                gradient_place<float> dgamma, gradient_place<float> dbeta, T* dscale, T* dshift,
                                into how, const T* residual = nullptr) {
        cuda::adaptive_norm_backward(with(adaptive_norm_backward_scratch_bytes(s, batch)), s, batch, x, gamma, beta,
                                     scale, statistics, dy, dx, dgamma, dbeta, dscale, dshift, how, residual);
    }
    void gelu_tanh(std::int64_t n, const T* x, T* y) { cuda::gelu_tanh(on_, n, x, y); }
    void gelu_tanh_backward(std::int64_t n, const T* x, const T* dy, T* dx, into how) {
        cuda::gelu_tanh_backward(on_, n, x, dy, dx, how);
    }
    void rotary(const rotary_shape& s, int batch, const T* x, T* y) { cuda::rotary(on_, s, batch, x, y); }
    void rotary_backward(const rotary_shape& s, int batch, const T* dy, T* dx) {
        cuda::rotary_backward(on_, s, batch, dy, dx);
    }
    void embedding(const embedding_shape& s, std::int64_t rows, const float* indices, const T* table, T* y) {
        cuda::embedding(on_, s, rows, indices, table, y);
    }
    void embedding_backward_weight(const embedding_shape& s, std::int64_t rows, const float* indices, const T* dy,
                                   gradient_place<float> dtable) {
        cuda::embedding_backward_weight(on_, s, rows, indices, dy, dtable);
    }
    void replace_padding(int batch, int tokens, int features, const float* mask, const T* padding, T* y) {
        cuda::replace_padding(on_, batch, tokens, features, mask, padding, y);
    }
    void replace_padding_backward(int batch, int tokens, int features, const float* mask, const T* dy, T* dx,
                                  gradient_place<float> dpadding) {
        cuda::replace_padding_backward(on_, batch, tokens, features, mask, dy, dx, dpadding);
    }
    void scale(std::int64_t n, float factor, const T* x, T* y) { cuda::scale(on_, n, factor, x, y); }

    void masked_attention(const masked_attention_shape& s, int batch, const T* q, const T* k, const T* v,
                          const float* mask, const T* bias, T* o) {
        cuda::masked_attention(on_, s, batch, q, k, v, mask, bias, o);
    }
    void rms_norm(const layer_norm_shape& s, std::int64_t rows, const T* x, const T* gamma, T* y) {
        cuda::rms_norm(on_, s, rows, x, gamma, y);
    }
    void quick_gelu(std::int64_t n, const T* x, T* y) { cuda::quick_gelu(on_, n, x, y); }
    void gate(std::int64_t n, const T* x, T* y) { cuda::gate(on_, n, x, y); }

    /// Does nothing: the backend caches nothing derived from weights.
    void weights_changed() noexcept {}
    /// Bytes of the shared scratch.
    [[nodiscard]] std::int64_t scratch_bytes() const noexcept { return scratch_.bytes() + wide_attention_.bytes(); }
    /// What computes attention: one line per pass and shape seen so far.
    [[nodiscard]] std::string attention_report() const { return attentions_.report() + wide_attention_.report(); }

private:
    backend(std::optional<cuda::stream> own, cudaStream_t given, const engine_options& options,
            const attention_options& attention) :
        own_{std::move(own)},
        on_{own_ ? own_->get() : given, properties_of(current_device()).multiprocessors, nullptr}, scratch_{on_.stream},
        products_{options, Precision::tensor_float}, convolutions_{options, Precision::tensor_float, on_.stream},
        attentions_{attention, options}, wide_attention_{on_.stream} {}

    [[nodiscard]] static channel_block rest(const conv2d_shape& s, int second) noexcept {
        return {s.in_channels - second, s.in_channels};
    }
    [[nodiscard]] static std::int64_t rows_of(const conv2d_shape& s, int batch) noexcept {
        return std::int64_t{batch} * s.in_height * s.in_width;
    }
    [[nodiscard]] queue with(std::size_t scratch_bytes) {
        return {on_.stream, on_.multiprocessors, scratch_.reserve(scratch_bytes)};
    }

    void convolve(const conv2d_shape& s, const channel_block& block, int batch, const T* x, const T* weight,
                  const T* bias, T* y, into how, const T* residual = nullptr, const T* t = nullptr) {
        if (!s.is_product()) {
            return convolutions_.forward(on_, scratch_, s, block, batch, x, weight, bias, y, how, residual, t);
        }
        products_.forward(on_, scratch_, {s.in_channels, s.out_channels}, block.all, rows_of(s, batch), x,
                          weight + block.first, bias, y, how, residual);
        if (t != nullptr) { add_per_sample(batch, s.in_height * s.in_width, s.out_channels, t, y); }
    }
    void convolve_back(const conv2d_shape& s, const channel_block& block, int batch, const T* dy, const T* weight,
                       T* dx, into how) {
        if (s.is_product()) {
            return products_.backward_input(on_, scratch_, {s.in_channels, s.out_channels}, block.all,
                                            rows_of(s, batch), dy, weight + block.first, dx, how);
        }
        convolutions_.backward_input(on_, scratch_, s, block, batch, dy, weight, dx, how);
    }
    void convolve_weight(const conv2d_shape& s, const channel_block& block, int batch, const T* x, const T* dy,
                         gradient_place<float> dweight, gradient_place<float> dbias) {
        if (s.is_product()) {
            return products_.backward_weight(on_, scratch_, {s.in_channels, s.out_channels}, block.all,
                                             rows_of(s, batch), x, dy, dweight + block.first, dbias);
        }
        convolutions_.backward_weight(on_, scratch_, s, block, batch, x, dy, dweight);
        if (dbias.wanted()) {
            sum_rows(std::int64_t{batch} * s.out_height() * s.out_width(), s.out_channels, dy, dbias);
        }
    }

    std::optional<cuda::stream> own_;
    queue on_;
    scratch_arena scratch_;
    products<T> products_;
    convolutions<T> convolutions_;
    attentions<Precision> attentions_;
    wide_attention<T> wide_attention_;
};

namespace detail {

template <class... P>
inline constexpr bool has_all = ((picture_backend<backend<P>> && text_backend<backend<P>> &&
                                  batches_linear<backend<P>> && sums_residuals<backend<P>>)&&...);
static_assert(has_all<bf16, fp16, tf32, fp32>,
              "pulse: cuda::backend must have every operation, including the optional ones");

} // namespace detail

} // namespace pulse::cuda
