#pragma once

#include <cstdint>

/// The functions of cuBLASLt that pulse calls, on the CPU: d = alpha op(a) op(b) + beta c in matrices stored by
/// columns, with the bias and BGRADB epilogues, whose vectors are aligned to 16 bytes, or batches at equal distances
/// without one. What is not understood is an error.
///
/// The heuristic proposes two algorithms: 0 needs no workspace; 1 needs one, which it fills with NaN, and wants 16-byte
/// alignment. Algorithms say nothing outside the process that made them but their number.
namespace emulated_cuda::cublas_lt {

/// Products that have run in this process, by algorithm.
[[nodiscard]] std::int64_t executed(int algorithm);

/// Calls of the heuristic in this process.
[[nodiscard]] std::int64_t heuristic_calls();

/// Whether the heuristic knows the BGRADB epilogue; it does unless told otherwise.
void set_bias_gradients_supported(bool supported);

/// Whether the heuristic knows batches; it does unless told otherwise.
void set_batches_supported(bool supported);

/// The alignment of d in bytes from which on the heuristic knows the BIAS epilogue; any, unless told otherwise.
void set_bias_alignment(int bytes);

/// What a product takes by an algorithm besides its computing, in seconds of the device; 0 unless told otherwise.
void set_cost(int algorithm, double seconds);

/// Whether an algorithm that the heuristic proposes is refused when it is to run; none is unless told otherwise.
void set_refused(int algorithm, bool refused);

} // namespace emulated_cuda::cublas_lt
