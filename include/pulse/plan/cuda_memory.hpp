#pragma once

#include <cstdint>

#include <pulse/plan/backend_scratch.hpp>
#include <pulse/plan/parameter_memory.hpp>

namespace pulse {

// What CUDA's backend and its optimizers size themselves by, so that plans for it need no CUDA.

/// What sums of squares of every layer keep on the device: its chunks, of 16 bytes, with the sum of each, where a
/// layer's begin, and the layer's sum; of Adafactor's update, one tensor after the other, the sums of 256 parts.
inline constexpr update_tables cuda_tables{
    .fixed = 4, .layer = 4 + 8, .chunk = 16 + 8, .chunk_elements = 32768, .factored = 256 * 8};

/// Scores of attention by products, which frozen networks alone have, that are there at once, with as many weights.
inline constexpr std::int64_t cuda_attention_scores = std::int64_t{1} << 24;
/// Blocks that sum gradients of the keys and values of an attention, at most where they have parts of its queries (two
/// for each multiprocessor of an H100), and numbers of one block's keys.
inline constexpr int cuda_attention_blocks = 264;
inline constexpr int cuda_attention_numbers = 64 * 256;

/// Partial sums of attention are of keys and of values, in float.
inline constexpr backend_scratch cuda_scratch{.library_bytes = std::int64_t{256} << 20,
                                              .copies_of_weights = 1,
                                              .copies_of_tensors = 2,
                                              .partial_bytes =
                                                  std::int64_t{2} * 4 * cuda_attention_blocks * cuda_attention_numbers,
                                              .frozen_bytes = (4 + 4) * cuda_attention_scores};

/// What a rank keeps that trains with CUDA's backend, of what an optimizer keeps.
[[nodiscard]] constexpr parameter_memory on_cuda(parameter_memory kept) noexcept {
    kept.tables = cuda_tables;
    kept.scratch = cuda_scratch;
    return kept;
}

} // namespace pulse
