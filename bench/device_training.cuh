#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <pulse/cuda/thread_transport.cuh>
#include <pulse/runtime/parameters.hpp>

#include "device_operations.cuh"

namespace pulse_bench {

using device_parameters = pulse::backend_parameters<device_operations>;

/// Enqueues the mean squared error of n predictions and its gradient; behind `loss` there is room for 64 sums.
void mean_squared_error(cudaStream_t stream, std::int64_t n, const __nv_bfloat16* prediction,
                        const __nv_bfloat16* target, __nv_bfloat16* gradient, double* loss);

/// Results of a step.
struct step_end {
    double gradient_norm{};
    double loss{};
};

/// pulse::cuda::rank_optimizer in bfloat16 behind a declaration, as device_operations is for the backend: clips
/// gradients to norm 1 and keeps an average of the weights.
class device_optimizer {
public:
    /// For a model of `layers` layers and one microbatch per step. It starts from the weights `initial`, or from none
    /// where steps are only counted.
    device_optimizer(std::size_t layers, device_parameters& parameters, std::span<const float> initial,
                     cudaStream_t stream);
    device_optimizer(const device_optimizer&) = delete;
    device_optimizer& operator=(const device_optimizer&) = delete;
    ~device_optimizer();

    /// One update; `step` counts from 1, `loss` is on the device.
    step_end step(device_parameters& parameters, pulse::cuda::thread_transport& transport, std::int64_t step,
                  const double* loss);

private:
    struct kernels;
    std::unique_ptr<kernels> adamw_;
};

} // namespace pulse_bench
