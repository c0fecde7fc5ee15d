#pragma once

#include <cstdint>

/// The functions of cuDNN's graph API that pulse calls, on the CPU.
///
/// Descriptors hold what is set. A graph of one convolution (forward, input gradient, weight gradient), alone or
/// followed by pointwise adds, is computed from the attributes of its descriptors: dims, strides, padding, window
/// strides, dilations, types, alpha, beta. Anything else is an error, as is a pointer that is less aligned than its
/// tensor says. No engine computes 16-bit weight gradients stored in float (the library compiles those at run time, and
/// some are wrong) or gradients of uneven padding (some of the library's are wrong, too).
///
/// Attention is supported, too: forward as one operation, backward as matrix products, sums and pointwise operations,
/// for heads of up to 128 numbers, as on sm_80.
///
/// There are four engines. Engine 0 rounds floats to TF32 and needs no workspace. Engine 1 keeps floats as they are and
/// needs a workspace, which it fills with NaN. Engine 2, a fallback, is engine 1 without the workspace. Engine 3,
/// proposed before engine 1, stands for Winograd: it loses as much of a float as engine 0 but uses no tensor core.
///
/// As in the library's notes, engines of attention and of graphs of three operations are compiled at run time. Tensors
/// must lie in device memory: the library does not document pinned memory.
namespace emulated_cuda::cudnn {

/// Graphs that this process has run on an engine.
[[nodiscard]] std::int64_t executed(int engine);

/// Plans finalized in this process from an engine configuration, and from JSON.
[[nodiscard]] std::int64_t planned();
[[nodiscard]] std::int64_t restored();

/// Adds seconds of device time to every graph that `engine` runs; 0 by default.
void set_cost(int engine, double seconds);
/// Marks `engine` as compiled at run time for every graph; false by default.
void set_compiled(int engine, bool compiled);
/// Makes `engine` fail when it runs, although its plan was finalized; false by default.
void set_refused(int engine, bool refused);

/// Whether engines accept fused graphs; true by default.
void set_fused(bool taken);

/// What the loader finds of NVRTC. Without all of it, cuDNN 9.19 does what is said here.
enum class compiler : std::uint8_t {
    whole,
    no_builtins, ///< engines that are compiled at run time are proposed, but finalizing their plan fails
    none         ///< such engines are not proposed
};
/// `whole` by default.
void set_compiler(compiler found);
/// Whether finalizing a plan fails for every engine.
void set_plans_refused(bool refused);

} // namespace emulated_cuda::cudnn
