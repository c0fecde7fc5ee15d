#pragma once

/// A warp's matrix instructions, compiled once: attention spends most of its time in them.

#include <bit>
#include <cmath>

namespace pulse::cuda {

void load_matrices(unsigned (&to)[4], const void* row);
void load_matrices_transposed(unsigned (&to)[4], const void* row);
void mma_bf16(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
void mma_fp16(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
void mma_tf32(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);

inline unsigned round_to_tf32(float x) {
    const auto bits = std::bit_cast<unsigned>(x);
    return std::isfinite(x) ? (bits + 0x1000u) & 0xffffe000u : bits;
}

inline float exp2_fast(float x) {
    const float y = std::exp2(x);
    return y < 0x1p-126f ? 0.0f : y;
}

} // namespace pulse::cuda
