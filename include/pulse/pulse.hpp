#pragma once

static_assert(__cplusplus >= 202002L, "pulse: C++20 is needed (-std=c++20)");

/// The headers of a trainer: models of layers, ranks that run a plan, and training. Include a backend beside this one
/// (<pulse/onednn/backend.hpp>, <pulse/cuda.cuh>), and <pulse/planner.hpp> where the plan is made.
///
/// Needs only the standard library.

// IWYU pragma: begin_exports
#include <pulse/core/error.hpp>

#include <pulse/model/graph_of.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/skip.hpp>

#include <pulse/nn/control.hpp>
#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/initialise.hpp>
#include <pulse/nn/unet.hpp>
#include <pulse/nn/uvit.hpp>

#include <pulse/profile/measure.hpp>

#include <pulse/runtime/executor.hpp>
#include <pulse/runtime/forward_runner.hpp>
#include <pulse/runtime/layer_bench.hpp>
#include <pulse/runtime/run.hpp>
#include <pulse/threads/ranks.hpp>
#include <pulse/threads/transport.hpp>

#include <pulse/train/adamw.hpp>
#include <pulse/train/cascade_trainer.hpp>
#include <pulse/train/clip.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/draw_images.hpp>
#include <pulse/train/ema.hpp>
#include <pulse/train/enlarging.hpp>
#include <pulse/train/guidance.hpp>
#include <pulse/train/initial_values.hpp>
#include <pulse/train/latent_task.hpp>
#include <pulse/train/learning_rate.hpp>
#include <pulse/train/loss.hpp>
#include <pulse/train/not_finite.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/sampler.hpp>
#include <pulse/train/scheduler_settings.hpp>
#include <pulse/train/self_conditioned.hpp>
#include <pulse/train/task.hpp>
#include <pulse/train/trainer.hpp>
// IWYU pragma: end_exports
