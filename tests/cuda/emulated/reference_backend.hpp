#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <emulated/runtime.hpp>

#include <pulse/cuda/error.cuh>
#include <pulse/cuda/space.cuh>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/weight_order.hpp>

namespace pulse::test {

/// reference::backend on the emulated device: each operation is a kernel of one thread. Data that reaches it too early
/// or too late is wrong, as for any kernel.
template <class T, class A = T>
class emulated_reference_backend {
public:
    using scalar = T;
    using accumulator = A;
    struct space : cuda::device_space {
        static constexpr weight_order weights = weight_order::checkpoint; ///< the reference's
    };

    explicit emulated_reference_backend(cudaStream_t stream) : stream_{stream} {}
    [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }

    void conv2d(auto... of) {
        put([=](auto& on) { on.conv2d(of...); });
    }
    void conv2d_backward_input(auto... of) {
        put([=](auto& on) { on.conv2d_backward_input(of...); });
    }
    void conv2d_backward_weight(auto... of) {
        put([=](auto& on) { on.conv2d_backward_weight(of...); });
    }
    void conv2d_pair(auto... of) {
        put([=](auto& on) { on.conv2d_pair(of...); });
    }
    void conv2d_pair_backward_input(auto... of) {
        put([=](auto& on) { on.conv2d_pair_backward_input(of...); });
    }
    void conv2d_pair_backward_weight(auto... of) {
        put([=](auto& on) { on.conv2d_pair_backward_weight(of...); });
    }
    // Callers pass shapes as braced lists, so the parameter type must be spelled out.
    void linear(const linear_shape& shape, auto... of) {
        put([=](auto& on) { on.linear(shape, of...); });
    }
    void linear_backward_input(const linear_shape& shape, auto... of) {
        put([=](auto& on) { on.linear_backward_input(shape, of...); });
    }
    void linear_backward_weight(const linear_shape& shape, auto... of) {
        put([=](auto& on) { on.linear_backward_weight(shape, of...); });
    }
    void group_norm(auto... of) {
        put([=](auto& on) { on.group_norm(of...); });
    }
    void group_norm_backward(auto... of) {
        put([=](auto& on) { on.group_norm_backward(of...); });
    }
    void attention(auto... of) {
        put([=](auto& on) { on.attention(of...); });
    }
    void attention_backward(auto... of) {
        put([=](auto& on) { on.attention_backward(of...); });
    }
    void layer_norm(auto... of) {
        put([=](auto& on) { on.layer_norm(of...); });
    }
    void layer_norm_backward(auto... of) {
        put([=](auto& on) { on.layer_norm_backward(of...); });
    }
    void adaptive_norm(auto... of) {
        put([=](auto& on) { on.adaptive_norm(of...); });
    }
    void adaptive_norm_backward(auto... of) {
        put([=](auto& on) { on.adaptive_norm_backward(of...); });
    }
    void gelu(auto... of) {
        put([=](auto& on) { on.gelu(of...); });
    }
    void gelu_backward(auto... of) {
        put([=](auto& on) { on.gelu_backward(of...); });
    }
    void gelu_tanh(auto... of) {
        put([=](auto& on) { on.gelu_tanh(of...); });
    }
    void gelu_tanh_backward(auto... of) {
        put([=](auto& on) { on.gelu_tanh_backward(of...); });
    }
    void geglu(auto... of) {
        put([=](auto& on) { on.geglu(of...); });
    }
    void geglu_backward(auto... of) {
        put([=](auto& on) { on.geglu_backward(of...); });
    }
    void rotary(auto... of) {
        put([=](auto& on) { on.rotary(of...); });
    }
    void rotary_backward(auto... of) {
        put([=](auto& on) { on.rotary_backward(of...); });
    }
    void embedding(auto... of) {
        put([=](auto& on) { on.embedding(of...); });
    }
    void embedding_backward_weight(auto... of) {
        put([=](auto& on) { on.embedding_backward_weight(of...); });
    }
    void replace_padding(auto... of) {
        put([=](auto& on) { on.replace_padding(of...); });
    }
    void replace_padding_backward(auto... of) {
        put([=](auto& on) { on.replace_padding_backward(of...); });
    }
    void silu(auto... of) {
        put([=](auto& on) { on.silu(of...); });
    }
    void silu_backward(auto... of) {
        put([=](auto& on) { on.silu_backward(of...); });
    }
    void scale(auto... of) {
        put([=](auto& on) { on.scale(of...); });
    }
    void add(auto... of) {
        put([=](auto& on) { on.add(of...); });
    }
    void copy(auto... of) {
        put([=](auto& on) { on.copy(of...); });
    }
    void fill(std::int64_t n, A value, T* y) {
        put([=](auto& on) { on.fill(n, value, y); });
    }
    void sum_rows(auto... of) {
        put([=](auto& on) { on.sum_rows(of...); });
    }
    void copy_rows(auto... of) {
        put([=](auto& on) { on.copy_rows(of...); });
    }
    void patches_to_image(auto... of) {
        put([=](auto& on) { on.patches_to_image(of...); });
    }
    void image_to_patches(auto... of) {
        put([=](auto& on) { on.image_to_patches(of...); });
    }
    void add_resampled(auto... of) {
        put([=](auto& on) { on.add_resampled(of...); });
    }
    void resampled_sums(auto... of) {
        put([=](auto& on) { on.resampled_sums(of...); });
    }
    void add_per_sample(auto... of) {
        put([=](auto& on) { on.add_per_sample(of...); });
    }
    void sum_pixels(auto... of) {
        put([=](auto& on) { on.sum_pixels(of...); });
    }
    void upsample_nearest(auto... of) {
        put([=](auto& on) { on.upsample_nearest(of...); });
    }
    void upsample_nearest_backward(auto... of) {
        put([=](auto& on) { on.upsample_nearest_backward(of...); });
    }
    void sinusoid(auto... of) {
        put([=](auto& on) { on.sinusoid(of...); });
    }

    void weights_changed() noexcept {}
    [[nodiscard]] std::int64_t scratch_bytes() const noexcept { return 0; }

private:
    template <class Operation>
    void put(Operation operation) {
        const auto body = [operation] {
            reference::backend<T, A> math;
            operation(math);
        };
        static const char kernel{}; // its address identifies the kernel
        cuda::check(emulated_cuda::enqueue_kernel(dim3{1, 1, 1}, dim3{1, 1, 1}, 0, stream_, body, {.kernel = &kernel}),
                    "a reference kernel");
    }

    cudaStream_t stream_;
};
static_assert(backend<emulated_reference_backend<float>>);

} // namespace pulse::test
