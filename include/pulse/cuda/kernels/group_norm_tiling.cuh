#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

/// How GroupNorm is divided among blocks: a block owns a slab (neighbouring whole groups, enough that its part of a
/// pixel is full memory sectors) over a chunk of one sample's pixels.
struct group_norm_tiling {
    int width{};       ///< scalars per access
    int slab_groups{}; ///< groups per slab; the last slab may have fewer
    int slabs{};
    int columns{};            ///< threads side by side along channels
    int passes{};             ///< walks over the slab
    int rows{};               ///< threads per column, which walk pixels
    int splits{};             ///< chunks per sample
    int chunk{};              ///< pixels per chunk; the last may have fewer
    bool resident{};          ///< the only chunk stays in shared memory: every tensor is read once
    std::size_t kept_bytes{}; ///< bytes of the tensors that a resident block keeps in shared memory; else 0

    [[nodiscard]] constexpr int threads() const noexcept { return (columns * rows + 31) / 32 * 32; }
    [[nodiscard]] constexpr int blocks(int batch) const noexcept { return slabs * splits * batch; }
    [[nodiscard]] constexpr int slab_channels(const group_norm_shape& s) const noexcept {
        return slab_groups * (s.all_channels() / s.groups);
    }
    /// Floats of a block's sums: those of its threads, two per channel and two per group.
    [[nodiscard]] constexpr std::size_t sum_floats() const noexcept {
        return static_cast<std::size_t>(columns) * width * rows + 2 * static_cast<std::size_t>(walked_channels()) +
               2 * static_cast<std::size_t>(slab_groups);
    }
    /// Channels over all passes: at least those of a slab.
    [[nodiscard]] constexpr __host__ __device__ int walked_channels() const noexcept {
        return passes * columns * width;
    }
    /// Dynamic shared memory of a block.
    [[nodiscard]] constexpr std::size_t shared_bytes() const noexcept {
        return kept_bytes + sum_floats() * sizeof(float);
    }
};

/// Most chunks per sample, because every block of the second pass reads all partial sums of its groups. All samples
/// together have at most `most_chunks`, unless there are more samples.
inline constexpr int most_splits = 64;
inline constexpr int most_chunks = 1024;
/// Most channels per slab, so that their sums fit into shared memory.
inline constexpr int most_slab_channels = 4096;
/// Shared memory that one resident block may use: what every device from compute capability 8.0 on allows a block.
inline constexpr std::size_t most_resident_bytes = 96 * 1024;
/// Shared memory of a multiprocessor that resident blocks share, as on compute capability 8.0.
inline constexpr std::size_t shared_bytes_of_multiprocessor = 160 * 1024;

/// The greatest number of chunks per sample on any device, which scratch is sized for.
[[nodiscard]] constexpr int group_norm_most_splits(const group_norm_shape& s, int batch) noexcept {
    return std::max(1, std::min({most_splits, most_chunks / std::max(batch, 1), (s.pixels + 15) / 16}));
}

/// Throws input_error for sizes that are not positive, and groups that do not divide the channels or are too large.
inline void check_group_norm(const group_norm_shape& s, int batch) {
    if (batch < 1 || s.channels < 1 || s.second_channels < 0 || s.pixels < 1) {
        throw input_error("group_norm: batch, channels and pixels must be at least 1, second_channels at least 0");
    }
    if (s.groups < 1 || s.all_channels() % s.groups != 0) {
        throw input_error("group_norm: " + std::to_string(s.groups) + " groups do not divide " +
                          std::to_string(s.all_channels()) + " channels");
    }
    if (s.all_channels() / s.groups > most_slab_channels) {
        throw input_error("group_norm: a group must have at most " + std::to_string(most_slab_channels) +
                          " channels, not " + std::to_string(s.all_channels() / s.groups));
    }
}

/// The layout for a device with `multiprocessors` multiprocessors. `width`, 1 or a divisor of the channels of both
/// sources, is used if groups allow it. `tensors` is the number that a resident block keeps: 1 forward, 2 backward; 0:
/// no block is resident.
[[nodiscard]] constexpr group_norm_tiling tile_group_norm(const group_norm_shape& s, int batch, int width,
                                                          int scalar_bytes, int tensors, int multiprocessors) {
    group_norm_tiling t;
    t.width = width;
    const int size = s.all_channels() / s.groups;
    // Whole accesses, and whole sectors of 32 bytes unless that needs very wide slabs.
    const auto wide_enough = [&](int channels) {
        const int bytes = channels * scalar_bytes;
        return channels % width == 0 && bytes >= 128 && (bytes % 32 == 0 || bytes >= 1024);
    };
    t.slab_groups = 1;
    while (t.slab_groups < s.groups && !wide_enough(t.slab_groups * size)) { ++t.slab_groups; }
    if (width != 1 && t.slab_channels(s) > most_slab_channels) {
        return tile_group_norm(s, batch, 1, scalar_bytes, tensors, multiprocessors);
    }
    t.slabs = (s.groups + t.slab_groups - 1) / t.slab_groups;
    const int accesses = t.slab_channels(s) / width;
    const auto shape_block = [&](int threads, int pixels) {
        t.passes = (accesses + threads - 1) / threads;
        t.columns = (accesses + t.passes - 1) / t.passes;
        t.rows = std::max(1, std::min(threads / t.columns, pixels));
    };

    // Resident if a slab fits and the blocks keep the device busy, or are so small that this does not matter.
    t.resident = true;
    t.splits = 1;
    t.chunk = s.pixels;
    const std::int64_t work = std::int64_t{accesses} * s.pixels;
    shape_block(static_cast<int>(std::clamp<std::int64_t>(work / 8 / 32 * 32, 128, 512)), s.pixels);
    t.kept_bytes = tensors * ((static_cast<std::size_t>(work) * width * scalar_bytes + 15) / 16 * 16);
    const std::size_t bytes = t.shared_bytes();
    if (tensors != 0 && t.passes == 1 && bytes <= most_resident_bytes) {
        // Blocks per multiprocessor, by shared memory and by registers (128 per thread).
        const int beside =
            static_cast<int>(std::min<std::size_t>(shared_bytes_of_multiprocessor / bytes, 512 / t.threads()));
        const std::int64_t room = std::int64_t{multiprocessors} * beside;
        const std::int64_t blocks = t.blocks(batch);
        const std::int64_t waves = (blocks + room - 1) / room;
        const bool full = blocks * 3 >= waves * room * 2; // two thirds: the cost of reading twice, forward
        const bool broad = waves == 1 && blocks * 4 >= multiprocessors;
        if (full || broad || waves >= 4 || t.kept_bytes <= 48 * 1024) { return t; }
    }

    t.resident = false;
    t.kept_bytes = 0;
    shape_block(256, s.pixels);
    // All blocks resident at once, two per multiprocessor by registers, unless there are more slabs than that.
    const int aim = std::max(1, 2 * multiprocessors / (t.slabs * batch));
    t.splits = std::min(aim, group_norm_most_splits(s, batch));
    t.splits = std::max(1, std::min(t.splits, s.pixels / (4 * t.rows)));
    t.chunk = (s.pixels + t.splits - 1) / t.splits;
    t.splits = (s.pixels + t.chunk - 1) / t.chunk;
    return t;
}

} // namespace pulse::cuda
