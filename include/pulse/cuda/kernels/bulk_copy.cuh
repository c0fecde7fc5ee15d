#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace pulse::cuda {

/// Whether the device code being compiled may use the copies below: sm_90 and later. Older targets do not assemble code
/// that calls them.
[[nodiscard]] __device__ constexpr bool has_bulk_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    return true;
#else
    return false;
#endif
}

/// A barrier in shared memory: one load at a time fills a slot, and the slot's barrier enters its next phase when the
/// bytes have arrived.
using bulk_barrier = std::uint64_t;

/// Initialises a barrier before its first load; phases are counted from 0.
__device__ inline void begin_phases(bulk_barrier* barrier) {
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); // the copy engine sees the barrier
}

/// Begins to copy from global to shared memory, bypassing registers and the multiprocessor's caches; one thread calls
/// it for all. Addresses and `bytes` are multiples of 16.
__device__ inline void begin_bulk_load(void* shared, const void* global, unsigned bytes, bulk_barrier* barrier) {
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    const auto from = static_cast<unsigned long long>(__cvta_generic_to_global(global));
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(at), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(at)
                 : "memory");
}

/// Returns when phase number `phase` of the barrier is over: the bytes of its load have arrived.
__device__ inline void wait_for_load(bulk_barrier* barrier, unsigned phase) {
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    unsigned over = 0;
    while (over == 0) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(over)
                     : "r"(at), "r"(phase & 1u)
                     : "memory");
    }
}

/// Begins to copy a load's bytes from shared to global memory. Addresses and `bytes` are multiples of 16.
__device__ inline void begin_bulk_store(void* global, const void* shared, unsigned bytes) {
    const auto from = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const auto to = static_cast<unsigned long long>(__cvta_generic_to_global(global));
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Returns when all but the latest `Later` stores of this thread have read their shared memory.
template <int Later>
__device__ void wait_until_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Later) : "memory");
}

/// Returns when all stores of this thread are done.
__device__ inline void wait_for_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

} // namespace pulse::cuda
