#pragma once

/// What a trainer on pictures includes beside pulse.hpp: pictures with captions or classes, and the frozen networks
/// from diffusers folders that encode them. On CUDA, include <pulse/cuda.cuh> first.
///
/// Link the CMake target pulse::pictures.

// IWYU pragma: begin_exports
#include <pulse/data/encoding_report.hpp>
#include <pulse/data/folder_report.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/scheduler.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/frozen/options.hpp>
#include <pulse/frozen/pictures.hpp>
#include <pulse/frozen/pictures_task.hpp>
#include <pulse/frozen/plan_for.hpp>
#include <pulse/frozen/tasks.hpp>
#include <pulse/train/saving.hpp>
#include <pulse/zoo/frozen_networks.hpp>
// IWYU pragma: end_exports
