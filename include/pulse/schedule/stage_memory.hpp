#pragma once

#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// Everything that a step keeps per microbatch on the devices, in bytes.
///
/// | held on the stage's device                         | from start of         | to end of               |
/// |----------------------------------------------------|-----------------------|-------------------------|
/// | saved bytes and outputs inside the stage           | F (1) (3)             | last pass (W, or B)     |
/// | input from another device                          | F                     | last pass               |
/// | stage 0's input                                    | F (3)                 | last pass               |
/// | input made by the previous stage on this device    | F of that stage       | last pass               |
/// | output to another device                           | F                     | F                       |
/// | output of the last stage                           | F (3)                 | B                       |
/// | skip tensor read on this device                    | F of its maker (1)    | last pass of both ends  |
/// | skip tensor from another device                    | F of its reader       | last pass of its reader |
/// | relayed skip tensor passing through                | F; B (gradient)       | F; B                    |
/// | conditioning, once per run of neighbouring stages  | F of the run's first  | last pass of the run    |
/// | its gradient                                       | B of the run's last   | B of the run's first    |
/// | gradients of outputs inside, deferred bytes        | B                     | last pass               |
/// | gradient of the output                             | B (2)                 | last pass               |
/// | gradient of an input from another device           | B                     | B                       |
/// | skip gradient on this device                       | B of the reader       | B of the maker          |
/// | skip gradient to and from another device           | B                     | B                       |
///
/// (1) recomputation::skips, when its forward runs again: during its F, and then from the F before which it runs again.
/// (2) Of the next stage when that is on the same device.
/// (3) A stage that recomputation::stages or selective runs again: during F, and then from the start of B, before which
/// the forward runs again.
///
/// An output that a cut sends includes the residual that is open there, and so does its gradient. A layer's output and
/// a skip tensor made by it are one tensor when their bytes agree. `plan/lower` has the exact buffers; this is the
/// planner's model of them.
[[nodiscard]] PULSE_CONSTEXPR std::vector<memory_hold> make_holds(const cost_table& costs,
                                                                  const std::vector<stage>& stages, bool split_backward,
                                                                  skip_routing routing,
                                                                  const stage_recomputation& recompute);

/// Adds what a preview holds: what lies inside a stage, a boundary or a relayed skip during its pass; a tensor that a
/// later stage of the device reads, until that one's pass ends. The prediction that it leaves is not counted here.
PULSE_CONSTEXPR void add_preview_holds(const cost_table& costs, const std::vector<stage>& stages, skip_routing routing,
                                       std::vector<memory_hold>& holds);

} // namespace pulse::detail

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/stage_memory.ipp> // IWYU pragma: keep
#endif
