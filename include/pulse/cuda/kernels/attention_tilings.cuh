#pragma once

#include <cstddef>
#include <cstdint>

namespace pulse::cuda {

/// Shared memory that a block may use on the two kinds of devices that have tiles: sm_80 (sm_90 and sm_100 have more),
/// and sm_86, sm_89 and sm_120. Every device that pulse is built for has at least the smaller amount.
inline constexpr std::size_t large_shared_bytes = 163 * 1024;
inline constexpr std::size_t small_shared_bytes = 99 * 1024;

/// The attention kernels that work on tiles.
enum class attention_kernel : std::uint8_t {
    forward,
    backward_keys,    ///< gradients of keys and values
    backward_queries, ///< gradients of queries
};

/// The tiling of a kernel on tensor cores: each warp owns 16 row_tiles rows and loops over the other side `columns` at
/// a time.
struct attention_tiling {
    int row_tiles{};
    int columns{};
    int warps{4};

    /// Rows per block.
    [[nodiscard]] constexpr int rows() const noexcept { return warps * row_tiles * 16; }
    [[nodiscard]] constexpr int threads() const noexcept { return warps * 32; }
    [[nodiscard]] constexpr bool operator==(const attention_tiling&) const noexcept = default;
};

/// Bytes of a row in head_tile's layout, for head_size scalars of `bytes` bytes.
[[nodiscard]] constexpr int attention_row_bytes(int head_size, int bytes) noexcept {
    return (head_size * bytes + 31) / 32 * 32 + 16;
}

/// Shared memory of a block on tensor cores, for heads of up to head_size scalars of `bytes` bytes.
[[nodiscard]] constexpr std::size_t attention_shared_bytes(attention_kernel which, int head_size, int bytes,
                                                           attention_tiling t) noexcept {
    const int rows = (which == attention_kernel::forward ? 1 : 2) * t.rows() + 4 * t.columns;
    const int numbers = which == attention_kernel::backward_keys ? 4 * t.columns : 0;
    return static_cast<std::size_t>(attention_row_bytes(head_size, bytes)) * rows + sizeof(float) * numbers;
}

/// Tiles on tensor cores within shared_bytes per block. More rows per warp mean fewer reads of shared memory; registers
/// set the limit, and two blocks share a multiprocessor if registers allow it. If those tiles do not fit, a warp gets
/// the smallest tile, and a block as many warps as fit.
[[nodiscard]] constexpr attention_tiling attention_tiling_of(attention_kernel which, int head_size, int bytes,
                                                             std::size_t shared_bytes) noexcept {
    attention_tiling t{};
    switch (which) {
    case attention_kernel::forward:
        t = bytes == 4         ? attention_tiling{1, 32}
            : head_size <= 88  ? attention_tiling{2, 64}
            : head_size <= 160 ? attention_tiling{2, 32}
                               : attention_tiling{1, 32};
        break;
    case attention_kernel::backward_keys:
        t = bytes == 4        ? attention_tiling{1, 16}
            : head_size <= 64 ? attention_tiling{2, 32}
            : head_size <= 88 ? attention_tiling{1, 64}
                              : attention_tiling{1, 32};
        break;
    case attention_kernel::backward_queries:
        t = bytes == 4        ? attention_tiling{1, head_size <= 88 ? 32 : 16}
            : head_size <= 88 ? attention_tiling{2, 32}
                              : attention_tiling{1, 32};
        break;
    }
    const auto fits = [&] { return attention_shared_bytes(which, head_size, bytes, t) <= shared_bytes; };
    if (fits()) { return t; }
    for (t = {1, 16}; t.warps > 1 && !fits();) { --t.warps; }
    return t;
}

/// The tiling of a kernel on float arithmetic: rows and columns of scores for each of 16x16 threads.
struct fma_tiling {
    int rows_each{};
    int columns_each{};

    [[nodiscard]] constexpr bool operator==(const fma_tiling&) const noexcept = default;
};

/// Shared memory of a block on float arithmetic, for heads of up to head_size features, in fma_tile's layout.
[[nodiscard]] constexpr std::size_t fma_shared_bytes(attention_kernel which, int head_size, fma_tiling t) noexcept {
    const int rows = 16 * t.rows_each;
    const int columns = 16 * t.columns_each;
    const int numbers = (head_size + 4) * ((which == attention_kernel::forward ? 1 : 2) * rows + 2 * columns);
    return sizeof(float) * (static_cast<std::size_t>(numbers) + static_cast<std::size_t>(columns + 4) * rows);
}

/// Tiles on float arithmetic within shared_bytes per block: fewer rows if the usual ones do not fit, then fewer
/// columns.
[[nodiscard]] constexpr fma_tiling fma_tiling_of(attention_kernel which, int head_size,
                                                 std::size_t shared_bytes) noexcept {
    fma_tiling t{head_size <= 128 ? 4 : 2, head_size <= 64 ? 4 : 2};
    while (fma_shared_bytes(which, head_size, t) > shared_bytes && t.rows_each * t.columns_each > 1) {
        (t.rows_each > 1 ? t.rows_each : t.columns_each) /= 2;
    }
    return t;
}

} // namespace pulse::cuda
