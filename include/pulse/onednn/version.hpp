#pragma once

#include <cstdint>

#include <oneapi/dnnl/dnnl.h>

// Calls that differ between oneDNN 2 and 3, behind functions with the same declaration. Nothing else checks the
// version.
namespace pulse::onednn {

static_assert(DNNL_VERSION_MAJOR == 2 || DNNL_VERSION_MAJOR == 3, "pulse: oneDNN must be 2.5 or later, and before 4");
static_assert(DNNL_CPU_RUNTIME != DNNL_RUNTIME_SYCL,
              "pulse: this oneDNN runs on SYCL, where a call returns before its result is ready; "
              "use one that is built for OpenMP");

/// The pass of a convolution.
enum class convolution_pass : std::uint8_t { forward, backward_input, backward_weight };

#if DNNL_VERSION_MAJOR == 2

/// A tensor's description, as it is owned and as it is passed to calls.
using onednn_tensor_owned = dnnl_memory_desc_t*;
using onednn_tensor_view = const dnnl_memory_desc_t*;

inline dnnl_status_t destroy_tensor(onednn_tensor_owned tensor) {
    delete tensor;
    return dnnl_success;
}

/// A tensor of floats in the layout of `tag`.
inline dnnl_status_t create_tensor(onednn_tensor_owned* made, int rank, const dnnl_dim_t* dims, dnnl_format_tag_t tag) {
    *made = new dnnl_memory_desc_t{};
    return dnnl_memory_desc_init_by_tag(*made, rank, dims, dnnl_f32, tag);
}
/// A tensor of floats with strides in elements.
inline dnnl_status_t create_tensor(onednn_tensor_owned* made, int rank, const dnnl_dim_t* dims,
                                   const dnnl_dim_t* strides) {
    *made = new dnnl_memory_desc_t{};
    return dnnl_memory_desc_init_by_strides(*made, rank, dims, dnnl_f32, strides);
}

/// Makes the result add to its target.
inline dnnl_status_t append_sum(dnnl_post_ops_t posts) { return dnnl_post_ops_append_sum(posts, 1.0F); }

#else

using onednn_tensor_owned = dnnl_memory_desc_t;
using onednn_tensor_view = const_dnnl_memory_desc_t;

inline dnnl_status_t destroy_tensor(onednn_tensor_owned tensor) { return dnnl_memory_desc_destroy(tensor); }

inline dnnl_status_t create_tensor(onednn_tensor_owned* made, int rank, const dnnl_dim_t* dims, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_create_with_tag(made, rank, dims, dnnl_f32, tag);
}
inline dnnl_status_t create_tensor(onednn_tensor_owned* made, int rank, const dnnl_dim_t* dims,
                                   const dnnl_dim_t* strides) {
    return dnnl_memory_desc_create_with_strides(made, rank, dims, dnnl_f32, strides);
}

inline dnnl_status_t append_sum(dnnl_post_ops_t posts) {
    return dnnl_post_ops_append_sum(posts, 1.0F, 0, dnnl_data_type_undef);
}

#endif

/// The tensors of a convolution, or their gradients; `bias` may be null. Strides and padding are for height and width.
struct convolution_tensors {
    onednn_tensor_view x;
    onednn_tensor_view weight;
    onednn_tensor_view bias;
    onednn_tensor_view y;
    const dnnl_dim_t* stride;
    const dnnl_dim_t* pad_before;
    const dnnl_dim_t* pad_after;
};

/// `hint` is the forward description that a backward one belongs to.
inline dnnl_status_t create_convolution(dnnl_primitive_desc_t* made, dnnl_engine_t engine, convolution_pass pass,
                                        const convolution_tensors& c, const_dnnl_primitive_attr_t attributes,
                                        const_dnnl_primitive_desc_t hint) {
    constexpr dnnl_alg_kind_t direct = dnnl_convolution_direct;
#if DNNL_VERSION_MAJOR == 2
    dnnl_convolution_desc_t operation{};
    const dnnl_status_t described =
        pass == convolution_pass::forward
            ? dnnl_convolution_forward_desc_init(&operation, dnnl_forward_training, direct, c.x, c.weight, c.bias, c.y,
                                                 c.stride, c.pad_before, c.pad_after)
        : pass == convolution_pass::backward_input
            ? dnnl_convolution_backward_data_desc_init(&operation, direct, c.x, c.weight, c.y, c.stride, c.pad_before,
                                                       c.pad_after)
            : dnnl_convolution_backward_weights_desc_init(&operation, direct, c.x, c.weight, c.bias, c.y, c.stride,
                                                          c.pad_before, c.pad_after);
    if (described != dnnl_success) { return described; }
    return dnnl_primitive_desc_create(made, &operation, attributes, engine, hint);
#else
    constexpr const dnnl_dim_t* dense = nullptr; // no dilation
    switch (pass) {
    case convolution_pass::forward:
        return dnnl_convolution_forward_primitive_desc_create(made, engine, dnnl_forward_training, direct, c.x,
                                                              c.weight, c.bias, c.y, c.stride, dense, c.pad_before,
                                                              c.pad_after, attributes);
    case convolution_pass::backward_input:
        return dnnl_convolution_backward_data_primitive_desc_create(made, engine, direct, c.x, c.weight, c.y, c.stride,
                                                                    dense, c.pad_before, c.pad_after, hint, attributes);
    default:
        return dnnl_convolution_backward_weights_primitive_desc_create(made, engine, direct, c.x, c.weight, c.bias, c.y,
                                                                       c.stride, dense, c.pad_before, c.pad_after, hint,
                                                                       attributes);
    }
#endif
}

} // namespace pulse::onednn
