#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <pulse/cuda/kernels/adaptive_norm.cuh>
#include <pulse/cuda/kernels/column_sums.cuh>
#include <pulse/cuda/kernels/embedding.cuh>
#include <pulse/cuda/kernels/geglu.cuh>
#include <pulse/cuda/kernels/group_norm_backward.cuh>
#include <pulse/cuda/kernels/group_norm_pieces.cuh>
#include <pulse/cuda/kernels/layer_norm_backward.cuh>
#include <pulse/cuda/kernels/masked_attention.cuh>
#include <pulse/cuda/kernels/movement.cuh>
#include <pulse/cuda/kernels/patches.cuh>
#include <pulse/cuda/kernels/pointwise.cuh>
#include <pulse/cuda/kernels/posterior.cuh>
#include <pulse/cuda/kernels/rms_norm.cuh>
#include <pulse/cuda/kernels/rotary.cuh>
#include <pulse/cuda/kernels/sinusoid.cuh>
#include <pulse/reference/backend.hpp>

#include <compare.hpp>

namespace pulse::test {

/// A device as the subject of the laws of support/operations.
template <class On, class Oracle = reference::backend<double>>
struct device_side {
    using scalar = typename On::scalar;
    using accumulator = float;
    template <class Value>
    using tensor = test::tensor<Value>;
    static constexpr bool approximates = true;
    static constexpr bool tensor_float = On::precision::tensor_float;

    template <class... Of>
    explicit device_side(Of&&... of) : on{std::forward<Of>(of)...} {}

    On on;
    Oracle oracle{};

    template <class Value>
    [[nodiscard]] doubles read(const tensor<Value>& t) const {
        on.synchronize();
        return t.download(waiting_);
    }
    template <class Value>
    [[nodiscard]] bool intact(const tensor<Value>& t) const {
        return t.intact(waiting_);
    }

private:
    device_queue waiting_{};
};

/// A backend's kernels as on a device with any number of multiprocessors. Each call gets exactly the scratch that it
/// asks for, poisoned.
template <class T>
class device_kernels {
public:
    using scalar = T;
    struct precision {
        static constexpr bool tensor_float = false;
    };
    int multiprocessors{3};

    void synchronize() const {
        if (queue_) { queue_->synchronize(); }
    }

    void group_norm(const group_norm_shape& s, int batch, auto... a) {
        cuda::group_norm<T>(with(cuda::group_norm_scratch_bytes(s, batch)), s, batch, a...);
    }
    void group_norm_backward(const group_norm_shape& s, int batch, auto... a) {
        cuda::group_norm_backward<T>(with(cuda::group_norm_backward_scratch_bytes(s, batch)), s, batch, a...);
    }
    void group_norm_statistics(const group_norm_shape& s, int batch, auto... a) {
        cuda::group_norm_statistics<T>(with(cuda::group_norm_scratch_bytes(s, batch)), s, batch, a...);
    }
    void layer_norm_backward(const layer_norm_shape& s, std::int64_t rows, auto... a) {
        cuda::layer_norm_backward<T>(with(cuda::layer_norm_backward_scratch_bytes(s, rows)), s, rows, a...);
    }
    void adaptive_norm_backward(const adaptive_norm_shape& s, int batch, auto... a) {
        cuda::adaptive_norm_backward<T>(with(cuda::adaptive_norm_backward_scratch_bytes(s, batch)), s, batch, a...);
    }
    void sum_pixels(int batch, int pixels, int channels, const T* y, T* t) {
        cuda::sum_pixels(with(cuda::sum_pixels_scratch_bytes(batch, pixels, channels)), batch, pixels, channels, y, t);
    }
    void sum_rows(std::int64_t rows, int columns, const T* x, float* sums) {
        cuda::add_bias_gradient(with(cuda::add_bias_gradient_scratch_bytes(rows, columns)), rows, columns, x, sums);
    }

    void layer_norm(auto... a) { cuda::layer_norm<T>(with(), a...); }
    void adaptive_norm(auto... a) { cuda::adaptive_norm<T>(with(), a...); }
    void group_norm_rows(auto... a) { cuda::group_norm_rows<T>(with(), a...); }
    void rms_norm(auto... a) { cuda::rms_norm<T>(with(), a...); }
    void silu(auto... a) { cuda::silu<T>(with(), a...); }
    void silu_backward(auto... a) { cuda::silu_backward<T>(with(), a...); }
    void gelu(auto... a) { cuda::gelu<T>(with(), a...); }
    void gelu_backward(auto... a) { cuda::gelu_backward<T>(with(), a...); }
    void gelu_tanh(auto... a) { cuda::gelu_tanh<T>(with(), a...); }
    void gelu_tanh_backward(auto... a) { cuda::gelu_tanh_backward<T>(with(), a...); }
    void geglu(auto... a) { cuda::geglu<T>(with(), a...); }
    void geglu_backward(auto... a) { cuda::geglu_backward<T>(with(), a...); }
    void quick_gelu(auto... a) { cuda::quick_gelu<T>(with(), a...); }
    void gate(auto... a) { cuda::gate<T>(with(), a...); }
    void sinusoid(auto... a) { cuda::sinusoid<T>(with(), a...); }
    void posterior(auto... a) { cuda::posterior<T>(with(), a...); }
    void add(std::int64_t n, const T* x, T* y) { cuda::add<T>(with(), n, x, y); }
    void scale(auto... a) { cuda::scale<T>(with(), a...); }
    void copy(auto... a) { cuda::copy<T>(with(), a...); }
    void fill(auto... a) { cuda::fill<T>(with(), a...); }
    void copy_rows(auto... a) { cuda::copy_rows<T>(with(), a...); }
    void patches_to_image(auto... a) { cuda::patches_to_image<T>(with(), a...); }
    void image_to_patches(auto... a) { cuda::image_to_patches<T>(with(), a...); }
    void upsample_nearest(auto... a) { cuda::upsample_nearest<T>(with(), a...); }
    void upsample_nearest_backward(auto... a) { cuda::upsample_nearest_backward<T>(with(), a...); }
    void add_per_sample(auto... a) { cuda::add_per_sample<T>(with(), a...); }
    void rotary(auto... a) { cuda::rotary<T>(with(), a...); }
    void rotary_backward(auto... a) { cuda::rotary_backward<T>(with(), a...); }
    void embedding(auto... a) { cuda::embedding<T>(with(), a...); }
    void embedding_backward_weight(auto... a) { cuda::embedding_backward_weight<T>(with(), a...); }
    void replace_padding(auto... a) { cuda::replace_padding<T>(with(), a...); }
    void replace_padding_backward(auto... a) { cuda::replace_padding_backward<T>(with(), a...); }
    void masked_attention(auto... a) { cuda::masked_attention<T>(with(), a...); }

private:
    /// Waits until earlier work in the queue has finished with its scratch.
    [[nodiscard]] cuda::queue with(std::size_t scratch_bytes = 0) {
        synchronize();
        queue_.emplace(scratch_bytes);
        cuda::queue on = queue_->on();
        on.multiprocessors = multiprocessors;
        return on;
    }

    std::optional<device_queue> queue_{};
};

template <class T>
using kernel_trial = operation_trial<device_side<device_kernels<T>>>;

} // namespace pulse::test
