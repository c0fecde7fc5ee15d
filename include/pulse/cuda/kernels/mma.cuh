#pragma once

#include <cuda_runtime.h>

namespace pulse::cuda {

// Matrix instructions of a warp (PTX ISA, "Warp-level matrix instructions"), called by all lanes. With g = lane / 4 and
// t = lane % 4, a lane holds of a tile of sums [16][8]: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).

/// Loads four 8x8 matrices of 16-bit numbers, or 8x4 of 32-bit ones: lane 8 m + r passes row r of matrix m, 16 aligned
/// bytes of shared memory; register m receives columns 2t and 2t + 1 of row g of matrix m, or column t of 32-bit ones.
__device__ inline void load_matrices(unsigned (&to)[4], const void* row) {
    const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

/// The same for 16-bit numbers, with each matrix transposed: register m receives rows 2t and 2t + 1 of column g.
__device__ inline void load_matrices_transposed(unsigned (&to)[4], const void* row) {
    const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

/// sums [16][8] += a [16][16] b [16][8] in bfloat16. Of a, a lane supplies rows g (registers 0, 2) and g + 8 (1, 3),
/// columns 2t and 2t + 1 (0, 1) and those 8 further (2, 3); of b, column g, rows 2t and 2t + 1 (b0) and those 8 further
/// (b1).
__device__ inline void mma_bf16(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The same in half precision.
__device__ inline void mma_fp16(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// sums [16][8] += a [16][8] b [8][8] on floats rounded by round_to_tf32. Of a, a lane supplies rows g (registers 0, 2)
/// and g + 8 (1, 3), columns t (0, 1) and t + 4 (2, 3); of b, column g, rows t (b0) and t + 4 (b1).
__device__ inline void mma_tf32(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The bits of x rounded to 10 bits of mantissa, to nearest, ties away from zero.
[[nodiscard]] __device__ inline unsigned round_to_tf32(float x) {
    unsigned bits = 0;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

/// 2^x to 2 units in the last place; 0 if that is below 2^-126.
[[nodiscard]] __device__ inline float exp2_fast(float x) {
    float y = 0.0f;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

} // namespace pulse::cuda
