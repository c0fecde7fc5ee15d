#pragma once

#include <cstdint>

#include <pulse/cuda/kernels/divider.cuh>
#include <pulse/cuda/kernels/lanes.cuh>
#include <pulse/cuda/kernels/map_items.cuh>
#include <pulse/cuda/kernels/movement.cuh>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/shape_checks.hpp>

namespace pulse::cuda {

/// Maps the scalars of an image to places in its tokens. A row of a patch, `patch * channels` scalars, is contiguous in
/// both.
template <int N>
struct patch_places {
    divider run_accesses; ///< of a row of a patch
    divider columns;
    divider sample_rows; ///< of pixels
    divider patch;
    int tokens;
    int leading;
    int features;
    int run;

    explicit patch_places(const patch_shape& s) :
        run_accesses(std::int64_t{s.patch} * s.channels / N), columns(s.columns),
        sample_rows(std::int64_t{s.rows} * s.patch),
        patch(s.patch), tokens{s.tokens()}, leading{s.leading}, features{s.features()}, run{s.patch * s.channels} {}

    /// Offset in the tokens of access i of the images, in scalars.
    [[nodiscard]] __device__ std::int64_t token_at(std::uint32_t i) const {
        const divided in_run = divide(i, run_accesses);
        const divided in_row = divide(in_run.quotient, columns);
        const divided in_sample = divide(in_row.quotient, sample_rows);
        const divided in_patch = divide(in_sample.remainder, patch);
        const std::int64_t token = std::int64_t{in_sample.quotient} * tokens + leading +
                                   std::int64_t{in_patch.quotient} * columns.divisor + in_row.remainder;
        return token * features + std::int64_t{in_patch.remainder} * run + std::int64_t{in_run.remainder} * N;
    }
};

template <class T, int N, bool ToImage>
struct patch_lanes {
    const T* x;
    T* y;
    patch_places<N> place;

    [[nodiscard]] __device__ lanes<T, N> read(std::uint32_t i) const {
        return lanes<T, N>::load(x + (ToImage ? place.token_at(i) : std::int64_t{i} * N));
    }
    __device__ void write(std::uint32_t i, const lanes<T, N>& of) const {
        of.store(y + (ToImage ? std::int64_t{i} * N : place.token_at(i)));
    }
};

template <bool ToImage, class T>
void move_patches(const queue& on, const char* operation, const patch_shape& s, int batch, const T* x, T* y) {
    pulse::detail::check_patches(operation, s, batch);
    const std::int64_t n = batch * s.image_elements();
    with_lanes<T>(is_packable<T>(std::int64_t{s.patch} * s.channels, x, y), [&]<int N>() {
        map_items(on, operation, n / N, patch_lanes<T, N, ToImage>{x, y, patch_places<N>(s)});
    });
}

/// Copies tokens x [batch][tokens][features] to images y, without the leading tokens. Must move 2 e n bytes for the n
/// scalars of the images.
template <class T>
void patches_to_image(const queue& on, const patch_shape& s, int batch, const T* x, T* y) {
    move_patches<true>(on, "patches_to_image", s, batch, x, y);
}
/// Copies images x to tokens y, with zeros in the leading ones. Must move 2 e n bytes, and write the leading tokens.
template <class T>
void image_to_patches(const queue& on, const patch_shape& s, int batch, const T* x, T* y) {
    move_patches<false>(on, "image_to_patches", s, batch, x, y);
    const std::int64_t leading = std::int64_t{s.leading} * s.features();
    if (leading != 0) { fill_rows(on, batch, leading, 0.0f, y, std::int64_t{s.tokens()} * s.features()); }
}

} // namespace pulse::cuda
