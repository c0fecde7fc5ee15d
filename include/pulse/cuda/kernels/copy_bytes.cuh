#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/cuda/kernels/bulk_copy.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>

namespace pulse::cuda {

/// Copies `head` single bytes, then `packs` accesses of 16 bytes, then single bytes again; all threads of the grid
/// share the work.
template <class Byte>
__global__ void __launch_bounds__(256)
    copy_bytes_kernel(const Byte* from, Byte* to, std::int64_t bytes, std::int64_t head, std::int64_t packs) {
    constexpr int in_flight = 4;
    const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
    const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const auto* const whole = reinterpret_cast<const int4*>(from + head);
    auto* const whole_to = reinterpret_cast<int4*>(to + head);
    std::int64_t i = first;
    for (; i + (in_flight - 1) * step < packs; i += in_flight * step) {
        int4 values[in_flight];
#pragma unroll
        for (int u = 0; u < in_flight; ++u) { values[u] = __ldcs(whole + i + u * step); }
#pragma unroll
        for (int u = 0; u < in_flight; ++u) { __stcs(whole_to + i + u * step, values[u]); }
    }
    for (; i < packs; i += step) { __stcs(whole_to + i, __ldcs(whole + i)); }
    for (std::int64_t e = first; e < bytes - 16 * packs; e += step) {
        const std::int64_t at = e < head ? e : e + 16 * packs;
        to[at] = from[at];
    }
}

/// Blocks of a copy: one per `each` bytes, at most `most`, or `filling` (which fills the device) if `most` is 0.
[[nodiscard]] constexpr unsigned copy_blocks(std::int64_t bytes, std::int64_t each, int most, int filling) noexcept {
    return static_cast<unsigned>(std::clamp<std::int64_t>((bytes + each - 1) / each, 1, most > 0 ? most : filling));
}

/// Copies bytes between any two addresses that the device can access, including memory of another device.
///
/// Accesses have 16 bytes if both addresses are equal modulo 16, else 1. At most `blocks` blocks of 256 threads run it,
/// so that a copy can leave multiprocessors to others; 0: as many as fill the device. Must move 2 x `bytes`. Throws
/// input_error for a negative number of bytes or blocks.
inline void copy_bytes(const queue& on, const std::byte* from, std::byte* to, std::int64_t bytes, int blocks = 0) {
    if (bytes < 0 || blocks < 0) { throw input_error("copy_bytes: bytes and blocks must be at least 0"); }
    if (bytes == 0) { return; }
    const auto off = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(from) % 16);
    const bool together = off == static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % 16);
    const std::int64_t head = together ? std::min((16 - off) % 16, bytes) : 0;
    const std::int64_t packs = together ? (bytes - head) / 16 : 0;
    const unsigned grid = copy_blocks(bytes, 4 * 16 * 256, blocks, 8 * on.multiprocessors);
    launch(copy_bytes_kernel<std::byte>, dim3(grid), dim3(256), 0, on.stream, from, to, bytes, head, packs);
}

/// Copies chunk by chunk through a ring of slots in shared memory: loads run ahead of stores, and one thread of a block
/// issues both. Code for targets before sm_90 copies with all threads, 16 bytes at a time.
template <int Slots, int Chunk, class Byte>
__global__ void __launch_bounds__(32) bulk_copy_kernel(const Byte* from, Byte* to, std::int64_t bytes) {
    static_assert(Slots > 1 && Chunk % 16 == 0);
    const std::int64_t even = bytes / 16 * 16;
    if (blockIdx.x == 0 && threadIdx.x < bytes - even) { to[even + threadIdx.x] = from[even + threadIdx.x]; }
    if constexpr (has_bulk_copies()) {
        if (threadIdx.x != 0) { return; }
        __shared__ bulk_barrier full[Slots];
        auto* const slots = shared_memory<Byte>();
        for (int s = 0; s < Slots; ++s) { begin_phases(full + s); }
        const std::int64_t chunks = (even + Chunk - 1) / Chunk;
        // Offset of this block's chunk i.
        const auto place = [=](std::int64_t i) { return (blockIdx.x + i * gridDim.x) * Chunk; };
        const auto size = [=](std::int64_t i) {
            const std::int64_t left = even - place(i);
            return static_cast<unsigned>(left < Chunk ? left : Chunk);
        };
        const std::int64_t mine = (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x;
        const auto load = [&](std::int64_t i) {
            begin_bulk_load(slots + i % Slots * Chunk, from + place(i), size(i), full + i % Slots);
        };
        for (std::int64_t i = 0; i < Slots && i < mine; ++i) { load(i); }
        for (std::int64_t i = 0; i < mine; ++i) {
            wait_for_load(full + i % Slots, static_cast<unsigned>(i / Slots));
            begin_bulk_store(to + place(i), slots + i % Slots * Chunk, size(i));
            // The previous chunk's slot is free once its store has read it; this chunk's store continues meanwhile.
            if (i > 0 && i - 1 + Slots < mine) {
                wait_until_read<1>();
                load(i - 1 + Slots);
            }
        }
        wait_for_stores();
    } else {
        const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
        for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < even / 16; i += step) {
            reinterpret_cast<int4*>(to)[i] = reinterpret_cast<const int4*>(from)[i];
        }
    }
}

/// Like copy_bytes, by the bulk copies of sm_90 and later: one thread per block works, and bytes bypass registers. On
/// older devices, and in code compiled for them, a block copies with 32 threads.
///
/// `blocks` as for copy_bytes. Must move 2 x `bytes`. Throws input_error if an address is not a multiple of 16.
inline void copy_bytes_in_bulk(const queue& on, const std::byte* from, std::byte* to, std::int64_t bytes,
                               int blocks = 0) {
    constexpr int slots = 4;
    constexpr int chunk = 8192;
    if (bytes < 0 || blocks < 0) { throw input_error("copy_bytes_in_bulk: bytes and blocks must be at least 0"); }
    if (!is_pack_aligned(from) || !is_pack_aligned(to)) {
        throw input_error("copy_bytes_in_bulk: addresses must be multiples of 16");
    }
    if (bytes == 0) { return; }
    const unsigned grid = copy_blocks(bytes, chunk, blocks, 2 * on.multiprocessors);
    launch(bulk_copy_kernel<slots, chunk, std::byte>, dim3(grid), dim3(32), slots * chunk, on.stream, from, to, bytes);
}

} // namespace pulse::cuda
