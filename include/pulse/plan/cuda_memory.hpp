#pragma once

#include <cstdint>

#include <pulse/plan/backend_scratch.hpp>
#include <pulse/plan/parameter_memory.hpp>

namespace pulse {

// Sizes of the CUDA backend and its optimizers, kept here so that planning for it needs no CUDA.

/// Device tables for the sums of squares of every layer: a chunk has its descriptor (16 bytes) and sum, a layer its
/// first chunk and sum. Adafactor's update works on one tensor at a time and has 256 partial sums.
inline constexpr update_tables cuda_tables{
    .fixed = 4, .layer = 4 + 8, .chunk = 16 + 8, .chunk_elements = 32768, .factored = 256 * 8};

/// Scores that attention by matrix products (frozen networks only) holds at a time, with as many weights.
inline constexpr std::int64_t cuda_attention_scores = std::int64_t{1} << 24;
/// Most thread blocks that sum the key and value gradients of an attention whose queries are split into parts (two for
/// each multiprocessor of an H100), and the number of values in one block's keys.
inline constexpr int cuda_attention_blocks = 264;
inline constexpr int cuda_attention_numbers = 64 * 256;

/// Attention has partial sums for keys and for values, in float.
inline constexpr backend_scratch cuda_scratch{.library_bytes = std::int64_t{256} << 20,
                                              .copies_of_weights = 1,
                                              .copies_of_tensors = 2,
                                              .partial_bytes =
                                                  std::int64_t{2} * 4 * cuda_attention_blocks * cuda_attention_numbers,
                                              .frozen_bytes = (4 + 4) * cuda_attention_scores};

/// What an optimizer keeps (`kept`), with the tables and the scratch of the CUDA backend.
[[nodiscard]] constexpr parameter_memory on_cuda(parameter_memory kept) noexcept {
    kept.tables = cuda_tables;
    kept.scratch = cuda_scratch;
    return kept;
}

} // namespace pulse
