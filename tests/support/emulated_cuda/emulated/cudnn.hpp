#pragma once

#include <cstdint>

/// The functions of cuDNN's graph API that pulse calls, on the CPU.
///
/// Descriptors hold what is set; a graph of one convolution (forward, input gradient, weight gradient), or one followed
/// by pointwise adds, is computed from the attributes of its descriptors: dims, strides, padding, window
/// strides, dilations, types, alpha, beta. What is not understood is an error, as is a pointer that is less aligned
/// than its tensor says. It has no engine for 16-bit weight gradients that are stored in
/// float: those of the library are compiled at run time, and some compute wrong ones; nor
/// for gradients of uneven padding, of which some of the library compute wrong ones, too.
///
/// So is attention: forward as one operation, backward as matrix products, sums and pointwise operations, of heads of
/// up to 128 numbers, as on sm_80.
///
/// There are four engines: engine 0 rounds floats to TF32 and needs no workspace; engine 1 takes them as they are and
/// needs a workspace, which it fills with NaN; engine 2, a fallback, is like engine 1 without workspace; engine 3,
/// which comes before engine 1, stands for Winograd's: floats lose as much in it as in engine 0, and no tensor core is
/// used.
///
/// As the library marks them, engines of attention and of graphs of three operations are compiled at run time. Tensors
/// are in memory of the device: of pinned memory the library says nothing.
namespace emulated_cuda::cudnn {

/// Graphs that have run in this process, by engine.
[[nodiscard]] std::int64_t executed(int engine);

/// Plans that were finalized in this process from an engine, and from JSON.
[[nodiscard]] std::int64_t planned();
[[nodiscard]] std::int64_t restored();

/// What a graph takes by an engine besides its computing, in seconds of the device; 0 unless told otherwise.
void set_cost(int engine, double seconds);
/// Whether an engine is compiled at run time for any graph; none is unless told otherwise.
void set_compiled(int engine, bool compiled);
/// Whether an engine whose plan is made ready is refused when it is to run; none is unless told otherwise.
void set_refused(int engine, bool refused);

/// Whether engines take fused graphs. They do unless told otherwise.
void set_fused(bool taken);

/// What of NVRTC the loader finds, with what cuDNN 9.19 does then.
enum class compiler : std::uint8_t {
    whole,
    no_builtins, ///< engines that are compiled at run time are proposed, and refused when their plan is finalized
    none         ///< they are not proposed
};
/// The whole, unless told otherwise.
void set_compiler(compiler found);
/// Whether plans of any engine are refused when they are finalized.
void set_plans_refused(bool refused);

} // namespace emulated_cuda::cudnn
