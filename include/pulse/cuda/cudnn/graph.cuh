#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cudnn.h>

#include <pulse/cuda/cudnn/descriptor.cuh>

namespace pulse::cuda::cudnn {

/// cuDNN's constant for a scalar type.
template <class T>
[[nodiscard]] constexpr cudnnDataType_t data_type() {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        return CUDNN_DATA_BFLOAT16;
    } else if constexpr (std::is_same_v<T, __half>) {
        return CUDNN_DATA_HALF;
    } else {
        static_assert(std::is_same_v<T, float>, "pulse::cuda: a scalar must be __nv_bfloat16, __half or float");
        return CUDNN_DATA_FLOAT;
    }
}

/// A tensor of a graph; dims and strides in elements, in cuDNN's order (images: batch, channels, height, width).
struct tensor {
    std::int64_t id{}; ///< unique in its graph; binds a pointer when the engine runs
    cudnnDataType_t type{};
    std::vector<std::int64_t> dims{};
    std::vector<std::int64_t> strides{};
    std::int64_t alignment{16}; ///< bytes; required of the bound pointer
    bool is_virtual{};          ///< never leaves the kernel: nothing is bound to it
    bool by_value{};            ///< a scalar on the host
};

/// Makes the descriptor of a tensor.
[[nodiscard]] inline descriptor make(const tensor& t) {
    descriptor made{CUDNN_BACKEND_TENSOR_DESCRIPTOR};
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, t.id)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, t.type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, t.dims)
        .set(CUDNN_ATTR_TENSOR_STRIDES, t.strides)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, t.alignment);
    if (t.is_virtual) { made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true); }
    if (t.by_value) { made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true); }
    return made.finalize("tensor " + std::to_string(t.id));
}

/// An image [batch][height][width][channels], channels packed.
[[nodiscard]] inline tensor image(std::int64_t id, cudnnDataType_t type, std::int64_t batch, std::int64_t channels,
                                  std::int64_t height, std::int64_t width) {
    return {.id = id,
            .type = type,
            .dims = {batch, channels, height, width},
            .strides = {height * width * channels, 1, width * channels, channels}};
}

/// y = mode(x) or mode(x, b), element by element in float; b is broadcast where its dims are 1.
[[nodiscard]] inline descriptor pointwise(cudnnPointwiseMode_t mode, const descriptor& x, const descriptor& b,
                                          const descriptor& y) {
    descriptor math{CUDNN_BACKEND_POINTWISE_DESCRIPTOR};
    math.set(CUDNN_ATTR_POINTWISE_MODE, mode)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
        .finalize("pointwise mode");
    descriptor made{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR};
    made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, math).set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b.get() != nullptr) { made.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b); }
    return made.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y).finalize("pointwise operation");
}

/// Finalized operations as one graph; `handle` is null if the graph is planned from device properties alone.
[[nodiscard]] inline descriptor operation_graph(const std::vector<descriptor>& operations, cudnnHandle_t handle) {
    descriptor made{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
    if (handle != nullptr) { made.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle); }
    made.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const descriptor>{operations});
    return made.finalize("operation graph");
}

} // namespace pulse::cuda::cudnn
