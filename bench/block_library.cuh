#pragma once

#include <cstdint>
#include <functional>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <pulse/runtime/backend.hpp>

#include "block_trial.cuh"
#include "layer_pass.hpp"

namespace pulse_bench {

/// One call of a library on the tensors of a case.
using library_call = std::function<void(const block_tensors<__nv_bfloat16>&)>;

/// cuDNN's convolution at its fastest, called alone: weights in cuDNN's order, their gradient written in bfloat16, the
/// faster of its heuristics' first plan and the best of six timed on `tensors`. As in pulse, its engines are
/// deterministic.
[[nodiscard]] library_call library_convolution(const pulse::conv2d_shape& s, int batch, layer_pass pass,
                                               cudaStream_t stream, const block_tensors<__nv_bfloat16>& tensors);

/// cuBLASLt's product called alone, by the fastest of its first eight proposals.
[[nodiscard]] library_call library_product(const pulse::linear_shape& s, std::int64_t rows, layer_pass pass,
                                           cudaStream_t stream, const block_tensors<__nv_bfloat16>& tensors);

} // namespace pulse_bench
