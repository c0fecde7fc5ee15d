#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cudnn.h>

#include <pulse/cuda/cudnn/descriptor.cuh>
#include <pulse/cuda/cudnn/graph.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda::cudnn {

/// What a convolution's graph computes.
enum class convolution_pass : std::uint8_t { forward, backward_input, backward_weight };

/// What a graph does besides the convolution itself.
enum class convolution_form : std::uint8_t {
    plain,      ///< writes the convolution alone
    scaled_add, ///< adds the convolution to the result, by beta
    bias,       ///< writes the convolution plus the bias
    bias_add,   ///< adds the convolution plus the bias to the target
    bias_sample ///< writes the convolution plus the bias and a vector per sample
};

/// The parameters of a convolution graph. Images are [batch][height][width][channels], weights [out][ky][kx][in],
/// packed.
struct convolution_graph {
    /// Which tensor a pointer is bound to; `x` is the image on the input side, `y` the one on the output side.
    enum id : std::int64_t { x = 1, weight, y, bias, target };

    conv2d_shape shape{};
    int batch{};
    convolution_pass pass{};
    convolution_form form{};
    cudnnDataType_t type{};     ///< of images, weights and bias
    std::int64_t alignment{16}; ///< of all pointers, in bytes

    [[nodiscard]] bool operator==(const convolution_graph&) const = default;
};

/// The window of a convolution, summed in float.
[[nodiscard]] inline descriptor window(const conv2d_shape& s) {
    const std::vector<std::int64_t> before{s.pad_before, s.pad_before};
    const std::vector<std::int64_t> after{s.pad_after, s.pad_after};
    const std::vector<std::int64_t> strides{s.stride, s.stride};
    const std::vector<std::int64_t> dilations{1, 1};
    descriptor made{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR};
    made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
        .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
        .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, before)
        .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, after)
        .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides)
        .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilations);
    return made.finalize("convolution window");
}

/// Makes the operation graph; throws cudnn_error if cuDNN does not support it.
///
/// The pointers to bind are x, weight and y, with `bias` in the forms that have one. In form bias_add, `target` is the
/// tensor that is added to, which may be the result itself: each element is read where it is written. In form
/// bias_sample, `target` is the vectors [batch][channels].
[[nodiscard]] inline descriptor make_graph(const convolution_graph& g, cudnnHandle_t handle) {
    using id = convolution_graph::id;
    using form = convolution_form;
    const conv2d_shape& s = g.shape;
    const bool fused = g.form != form::plain && g.form != form::scaled_add;
    tensor x = image(id::x, g.type, g.batch, s.in_channels, s.in_height, s.in_width);
    tensor w = image(id::weight, g.type, s.out_channels, s.in_channels, s.kernel, s.kernel);
    tensor y = image(id::y, g.type, g.batch, s.out_channels, s.out_height(), s.out_width());
    x.alignment = w.alignment = y.alignment = g.alignment;
    tensor& result = g.pass == convolution_pass::forward ? y : g.pass == convolution_pass::backward_input ? x : w;

    // Values between the operations of one kernel stay in float and are never stored.
    tensor between = result;
    between.id = 100;
    between.type = CUDNN_DATA_FLOAT;
    between.is_virtual = true;
    const tensor final_result = result;
    if (fused) { result = between; }

    const float beta = g.form == form::scaled_add ? 1.0F : 0.0F;
    std::vector<descriptor> operations;
    descriptor convolved = make(result);
    switch (g.pass) {
    case convolution_pass::forward: {
        descriptor made{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR};
        made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, window(s))
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, make(x))
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, make(w))
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, convolved)
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0F)
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, beta)
            .finalize("convolution");
        operations.push_back(made);
        break;
    }
    case convolution_pass::backward_input: {
        descriptor made{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR};
        made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, window(s))
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, make(y))
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, make(w))
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, convolved)
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0F)
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, beta)
            .finalize("convolution, input gradient");
        operations.push_back(made);
        break;
    }
    case convolution_pass::backward_weight: {
        descriptor made{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR};
        made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, window(s))
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, make(x))
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, make(y))
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, convolved)
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0F)
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, beta)
            .finalize("convolution, weight gradient");
        operations.push_back(made);
        break;
    }
    }

    if (fused) {
        constexpr cudnnPointwiseMode_t plus = CUDNN_POINTWISE_ADD;
        tensor bias = image(id::bias, g.type, 1, s.out_channels, 1, 1);
        bias.alignment = g.alignment;
        if (g.form == form::bias) {
            operations.push_back(pointwise(plus, convolved, make(bias), make(final_result)));
        } else {
            tensor biased = between;
            biased.id = 101;
            const descriptor sum = make(biased);
            operations.push_back(pointwise(plus, convolved, make(bias), sum));
            tensor before = g.form == form::bias_add ? final_result : image(0, g.type, g.batch, s.out_channels, 1, 1);
            before.alignment = g.alignment;
            before.id = id::target;
            operations.push_back(pointwise(plus, sum, make(before), make(final_result)));
        }
    }
    return operation_graph(operations, handle);
}

} // namespace pulse::cuda::cudnn
