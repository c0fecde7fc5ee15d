#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <pulse/core/error.hpp>
#include <pulse/core/owner.hpp>
#include <pulse/cuda/capture_guard.cuh>

namespace pulse::cuda::cublas {

/// A cuBLASLt call failed; the text names the call and the status.
struct cublas_error : pulse::error {
    cublas_error(cublasStatus_t status, const std::string& failed_call) :
        pulse::error{"cuBLASLt: " + failed_call + ": " + cublasLtGetStatusName(status) + ", " +
                     cublasLtGetStatusString(status)},
        code{status}, call{failed_call} {}

    cublasStatus_t code;
    std::string call;
};

/// Throws cublas_error unless `status` is success; `call` names what was called.
inline void check(cublasStatus_t status, std::string_view call) {
    if (status != CUBLAS_STATUS_SUCCESS) { throw cublas_error{status, std::string{call}}; }
}

/// Calls cublasLtDestroy while no stream is captured, because it may wait for the device.
inline cublasStatus_t close_library(cublasLtHandle_t handle) {
    const std::unique_lock no_capture{capture_guard()};
    return cublasLtDestroy(handle);
}

using library = owner<cublasLtHandle_t, close_library>;
using product_description = owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using layout = owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using preference = owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// Opens cuBLASLt on the current device.
[[nodiscard]] inline library open_library() {
    library made;
    check(cublasLtCreate(made.place()), "cublasLtCreate");
    return made;
}

template <class T>
void set(const product_description& of, cublasLtMatmulDescAttributes_t name, const T& value) {
    check(cublasLtMatmulDescSetAttribute(of.get(), name, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}
template <class T>
void set(const preference& of, cublasLtMatmulPreferenceAttributes_t name, const T& value) {
    check(cublasLtMatmulPreferenceSetAttribute(of.get(), name, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
}

/// A column-major matrix, with `stride` elements from one column to the next.
[[nodiscard]] inline layout make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                                        std::int64_t stride) {
    layout made;
    check(cublasLtMatrixLayoutCreate(made.place(), type, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), stride),
          "cublasLtMatrixLayoutCreate");
    return made;
}

/// Makes the layout a batch of `count` matrices, `stride` elements from one to the next; 0: all are the same one.
inline void set_batch(const layout& of, int count, std::int64_t stride) {
    const auto matrices = static_cast<std::int32_t>(count);
    check(cublasLtMatrixLayoutSetAttribute(of.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &matrices, sizeof matrices),
          "cublasLtMatrixLayoutSetAttribute");
    check(
        cublasLtMatrixLayoutSetAttribute(of.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
        "cublasLtMatrixLayoutSetAttribute");
}

/// cuBLASLt's constant for a scalar type.
template <class T>
[[nodiscard]] constexpr cudaDataType_t data_type() {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        return CUDA_R_16BF;
    } else if constexpr (std::is_same_v<T, __half>) {
        return CUDA_R_16F;
    } else {
        static_assert(std::is_same_v<T, float>, "pulse::cuda: a scalar must be __nv_bfloat16, __half or float");
        return CUDA_R_32F;
    }
}

} // namespace pulse::cuda::cublas
