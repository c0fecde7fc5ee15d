#pragma once

/// Everything in pulse that needs CUDA.

// IWYU pragma: begin_exports
#include <pulse/cuda/attention.cuh>
#include <pulse/cuda/attentions.cuh>
#include <pulse/cuda/backend.cuh>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/device_copies.cuh>
#include <pulse/cuda/device_images.cuh>
#include <pulse/cuda/device_latents.cuh>
#include <pulse/cuda/device_updates.cuh>
#include <pulse/cuda/diffusion_task.cuh>
#include <pulse/cuda/engine_options.cuh>
#include <pulse/cuda/error.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/kernels/adamw.cuh>
#include <pulse/cuda/kernels/convert.cuh>
#include <pulse/cuda/kernels/copy_bytes.cuh>
#include <pulse/cuda/kernels/diffusion.cuh>
#include <pulse/cuda/kernels/sum_of_squares.cuh>
#include <pulse/cuda/latent_task.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/layer_timer.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/cuda/range.cuh>
#include <pulse/cuda/ranks.cuh>
#include <pulse/cuda/space.cuh>
#include <pulse/cuda/step_graphs.cuh>
#include <pulse/cuda/stream.cuh>
#include <pulse/cuda/stream_clock.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/cuda/time_engines.cuh>
// IWYU pragma: end_exports
