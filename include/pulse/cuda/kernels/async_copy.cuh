#pragma once

#include <cuda_runtime.h>

namespace pulse::cuda {

/// Begins to copy 16 bytes from global to shared memory, both aligned to 16, bypassing registers; writes zeros without
/// reading if not `present`.
__device__ inline void begin_copy(void* shared, const void* global, bool present) {
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const int bytes = present ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
}

/// The same for 4 bytes, aligned to 4.
__device__ inline void begin_copy_word(void* shared, const void* global, bool present) {
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const int bytes = present ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
}

/// Returns when all copies of this thread are done. Other threads see the bytes after a barrier.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

} // namespace pulse::cuda
