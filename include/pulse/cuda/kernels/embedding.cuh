#pragma once

#include <cstdint>

#include <pulse/cuda/kernels/divider.cuh>
#include <pulse/cuda/kernels/lanes.cuh>
#include <pulse/cuda/kernels/map_items.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

template <class T, int N>
struct embedding_lanes {
    const float* indices;
    const T* table;
    T* y;
    int features;
    divider row_accesses;

    [[nodiscard]] __device__ lanes<T, N> read(std::uint32_t i) const {
        const divided at = divide(i, row_accesses);
        const auto entry = static_cast<std::int64_t>(indices[at.quotient]);
        return lanes<T, N>::load(table + entry * features + std::int64_t{at.remainder} * N);
    }
    __device__ void write(std::uint32_t i, const lanes<T, N>& of) const { of.store(y + std::int64_t{i} * N); }
};

/// One scalar of dy. The first row with an index sums those of all rows with that index.
template <class T>
struct embedding_gradient_scalars {
    const float* indices;
    const T* dy;
    float* dtable;
    std::int64_t rows;
    divider features;

    struct item {
        float* to; ///< null: another row sums it
        float sum;
    };
    [[nodiscard]] __device__ item read(std::uint32_t i) const {
        const divided at = divide(i, features);
        const float index = indices[at.quotient];
        for (std::uint32_t r = 0; r < at.quotient; ++r) {
            if (indices[r] == index) { return {nullptr, 0.0f}; }
        }
        float* const to = dtable + static_cast<std::int64_t>(index) * features.divisor + at.remainder;
        float sum = *to;
        for (std::int64_t r = at.quotient; r < rows; ++r) {
            if (indices[r] == index) { sum += to_float(dy[r * features.divisor + at.remainder]); }
        }
        return {to, sum};
    }
    __device__ void write(std::uint32_t, const item& of) const {
        if (of.to != nullptr) { *of.to = of.sum; }
    }
};

/// y[r] = table[indices[r]] for `rows` rows: table [entries][features], y [rows][features], indices whole numbers below
/// `entries`, which is not checked. Must move 2 e n bytes.
template <class T>
void embedding(const queue& on, const embedding_shape& s, std::int64_t rows, const float* indices, const T* table,
               T* y) {
    if (s.entries < 1 || s.features < 1) { throw input_error("embedding: entries and features must be at least 1"); }
    with_lanes<T>(is_packable<T>(s.features, table, y), [&]<int N>() {
        map_items(on, "embedding", rows * s.features / N,
                  embedding_lanes<T, N>{indices, table, y, s.features, divider(s.features / N)});
    });
}
/// dtable[indices[r]] += dy[r] in ascending order of r, starting from zeros when overwriting. Must read dy once and
/// move the rows of dtable twice; reads indices rows^2 / 2 times, which suits the labels of a batch.
template <class T>
void embedding_backward_weight(const queue& on, const embedding_shape& s, std::int64_t rows, const float* indices,
                               const T* dy, gradient_place<float> dtable) {
    if (s.entries < 1 || s.features < 1) {
        throw input_error("embedding_backward_weight: entries and features must be at least 1");
    }
    if (!dtable.adds()) {
        fill_bytes_async(dtable.to, 0, static_cast<std::size_t>(s.entries) * static_cast<std::size_t>(s.features),
                         on.stream);
    }
    map_items(on, "embedding_backward_weight", rows * s.features,
              embedding_gradient_scalars<T>{indices, dy, dtable.to, rows, divider(s.features)});
}

/// Replaces rows whose mask is 0 by those of `padding`.
template <class T, int N>
struct padding_lanes {
    const float* mask;
    const T* padding;
    T* y;
    int features;
    divider row_accesses;
    divider tokens;

    struct item {
        lanes<T, N> padding;
        bool kept;
    };
    [[nodiscard]] __device__ item read(std::uint32_t i) const {
        const divided at = divide(i, row_accesses);
        const std::int64_t token = divide(at.quotient, tokens).remainder;
        return {lanes<T, N>::load(padding + token * features + std::int64_t{at.remainder} * N),
                mask[at.quotient] != 0.0f};
    }
    __device__ void write(std::uint32_t i, const item& of) const {
        if (!of.kept) { of.padding.store(y + std::int64_t{i} * N); }
    }
};

/// dx = dy where the mask is not 0, else 0.
template <class T, int N>
struct padding_gradient_lanes {
    const float* mask;
    const T* dy;
    T* dx;
    divider row_accesses;

    struct item {
        lanes<T, N> dy;
        bool kept;
    };
    [[nodiscard]] __device__ item read(std::uint32_t i) const {
        return {lanes<T, N>::load(dy + std::int64_t{i} * N), mask[row_accesses.quotient(i)] != 0.0f};
    }
    __device__ void write(std::uint32_t i, const item& of) const {
        float made[N];
#pragma unroll
        for (int n = 0; n < N; ++n) { made[n] = of.kept ? of.dy[n] : 0.0f; }
        lanes<T, N>::of(made).store(dx + std::int64_t{i} * N);
    }
};

/// dpadding[token] = (or +=) dy of the rows whose mask is 0, samples in ascending order; one scalar per thread.
template <class T>
struct padding_sums {
    const float* mask;
    const T* dy;
    gradient_place<float> dpadding;
    int batch;
    int tokens;
    divider features;

    [[nodiscard]] __device__ float read(std::uint32_t i) const {
        const std::int64_t token = features.quotient(i);
        const std::int64_t sample = std::int64_t{tokens} * features.divisor;
        float sum = dpadding.how == into::add ? dpadding.to[i] : 0.0f;
        // Unrolling makes a thread's items spill registers on sm_100.
#pragma unroll 1
        for (int b = 0; b < batch; ++b) {
            if (mask[std::int64_t{b} * tokens + token] == 0.0f) { sum += to_float(dy[b * sample + i]); }
        }
        return sum;
    }
    __device__ void write(std::uint32_t i, float sum) const { dpadding.to[i] = sum; }
};

/// Replaces rows of y [batch][tokens][features] whose mask [batch][tokens] is 0 by padding[token]. Must write those
/// rows.
template <class T>
void replace_padding(const queue& on, int batch, int tokens, int features, const float* mask, const T* padding, T* y) {
    if (batch < 1 || tokens < 1 || features < 1) {
        throw input_error("replace_padding: batch, tokens and features must be at least 1");
    }
    const std::int64_t n = std::int64_t{batch} * tokens * features;
    with_lanes<T>(is_packable<T>(features, padding, y), [&]<int N>() {
        map_items(on, "replace_padding", n / N,
                  padding_lanes<T, N>{mask, padding, y, features, divider(features / N), divider(tokens)});
    });
}
/// dx = dy where the mask is not 0, else 0 (dx may be dy); dpadding[token] = (or +=) dy of the rows whose mask is 0.
/// Must move 2 e n bytes.
template <class T>
void replace_padding_backward(const queue& on, int batch, int tokens, int features, const float* mask, const T* dy,
                              T* dx, gradient_place<float> dpadding) {
    if (batch < 1 || tokens < 1 || features < 1) {
        throw input_error("replace_padding_backward: batch, tokens and features must be at least 1");
    }
    const std::int64_t sample = std::int64_t{tokens} * features;
    // Before dx is written, because it may be dy.
    map_items(on, "replace_padding_backward", sample,
              padding_sums<T>{mask, dy, dpadding, batch, tokens, divider(features)});
    with_lanes<T>(is_packable<T>(features, dy, dx), [&]<int N>() {
        map_items(on, "replace_padding_backward", batch * sample / N,
                  padding_gradient_lanes<T, N>{mask, dy, dx, divider(features / N)});
    });
}

} // namespace pulse::cuda
