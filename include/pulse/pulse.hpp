#pragma once

static_assert(__cplusplus >= 202002L, "pulse: C++20 is needed (-std=c++20)");

/// Everything that needs only the standard library.

// IWYU pragma: begin_exports
#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/core/label.hpp>

#include <pulse/tensor/shape.hpp>

#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/model/rules.hpp>
#include <pulse/model/skip.hpp>

#include <pulse/profile/cost_table.hpp>

#include <pulse/partition/partition.hpp>

#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

#include <pulse/plan/instruction.hpp>
#include <pulse/plan/plan.hpp>

#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/runtime/transport.hpp>
// IWYU pragma: end_exports
