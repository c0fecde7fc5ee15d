#pragma once

#include <cstdint>
#include <vector>

#include <cudnn.h>

#include <pulse/cuda/cudnn/convolution.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda::cudnn {

/// A pass of a convolution as a backend asks for it.
struct convolution_request {
    conv2d_shape shape{};
    int batch{};
    convolution_pass pass{};
    cudnnDataType_t type{}; ///< of images, weights and their gradients
    bool adds{};            ///< to the result; otherwise overwrites it
    bool has_bias{};        ///< forward only; cuDNN does not compute gradients of biases
    bool has_vectors{};     ///< one per sample, in addition to a bias

    [[nodiscard]] bool operator==(const convolution_request&) const = default;
};

/// The shape whose gradients cuDNN is asked for: uneven padding is made even, with rows and columns of zeros added to
/// the image instead. Several of cuDNN 9.19's engines compute wrong gradients for uneven padding (seen on an H200).
[[nodiscard]] constexpr conv2d_shape evenly_padded(conv2d_shape s) noexcept {
    const int even = s.pad_before < s.pad_after ? s.pad_before : s.pad_after;
    const int zeros = s.pad_before + s.pad_after - 2 * even;
    s.in_height += zeros;
    s.in_width += zeros;
    s.pad_before = s.pad_after = even;
    return s;
}

/// The forms that serve a request, the preferred one first. A form without the requested bias or vectors leaves them to
/// kernels, and a plain form leaves adding a weight gradient to one. A form that adds although overwriting is requested
/// needs a result of zeros.
[[nodiscard]] inline std::vector<convolution_form> forms_for(const convolution_request& r) {
    using form = convolution_form;
    if (r.pass == convolution_pass::forward && r.has_bias) {
        if (r.adds) { return {form::bias_add, form::scaled_add}; }
        if (r.has_vectors) { return {form::bias_sample, form::bias, form::plain}; }
        return {form::bias, form::plain};
    }
    if (r.adds && r.pass == convolution_pass::backward_weight) { return {form::scaled_add, form::plain}; }
    if (r.adds) { return {form::scaled_add}; }
    return {form::plain};
}

/// The graph of a request in one of its forms, for pointers aligned to 16 bytes.
[[nodiscard]] inline convolution_graph graph_of_request(const convolution_request& r, convolution_form form) {
    return {r.shape, r.batch, r.pass, form, r.type, 16};
}

} // namespace pulse::cuda::cudnn
