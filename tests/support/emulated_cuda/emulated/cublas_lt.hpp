#pragma once

#include <cstdint>

/// The functions of cuBLASLt that pulse calls, on the CPU: d = alpha op(a) op(b) + beta c on column-major matrices.
/// Single products may have the bias and BGRADB epilogues, whose vectors are 16-byte aligned; strided batches have
/// none. Anything else is an error.
///
/// The heuristic proposes two algorithms: 0 needs no workspace; 1 needs one, fills it with NaN, and requires 16-byte
/// alignment. Outside the process that made it, an algorithm is only its number.
namespace emulated_cuda::cublas_lt {

/// Products that this process has run by an algorithm.
[[nodiscard]] std::int64_t executed(int algorithm);

/// Calls of the heuristic in this process.
[[nodiscard]] std::int64_t heuristic_calls();

/// Whether the heuristic knows the BGRADB epilogue; true by default.
void set_bias_gradients_supported(bool supported);

/// Whether the heuristic knows batches; true by default.
void set_batches_supported(bool supported);

/// Least alignment of d, in bytes, at which the heuristic knows the BIAS epilogue; any by default.
void set_bias_alignment(int bytes);

/// Adds seconds of device time to every product that `algorithm` runs; 0 by default.
void set_cost(int algorithm, double seconds);

/// Makes `algorithm` fail when it runs, although the heuristic proposes it; false by default.
void set_refused(int algorithm, bool refused);

} // namespace emulated_cuda::cublas_lt
