#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include <pulse/cuda/backend.cuh>
#include <pulse/cuda/device_latents.cuh>
#include <pulse/cuda/diffusion_task.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/train/condition_values.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/latent_task.hpp>
#include <pulse/train/noise_process.hpp>

namespace pulse::train {

/// The latent task on the rank's device.
template <class Precision>
class latent_task<cuda::backend<Precision>> : public cuda::diffusion_task<Precision, cuda::device_latents> {
    using base = cuda::diffusion_task<Precision, cuda::device_latents>;

public:
    using latents = cuda::device_latents;
    /// In half precision, the autoencoder of SDXL overflows.
    using frozen_backend =
        cuda::backend<std::conditional_t<std::is_same_v<Precision, cuda::fp16>, cuda::tf32, Precision>>;

    latent_task(latents& of_step, const noise_process& noise, const diffusion_options& options,
                const any_transport& of_rank, condition_source conditions, mask_source masks = {}) :
        base{of_step, noise, options, cuda::stream_of(of_rank), std::move(conditions), std::move(masks)},
        latents_{of_step}, stream_{cuda::stream_of(of_rank)} {}

    void begin(std::uint64_t position, double loss_scale = 1.0) {
        latents_.upload(stream_);
        base::begin(position, loss_scale);
    }

private:
    latents& latents_;
    cudaStream_t stream_;
};

} // namespace pulse::train
