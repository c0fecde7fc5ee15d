#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace pulse::cuda {

/// log2(e) and its inverse: softmax is computed in base 2.
inline constexpr float log2_of_e = 1.44269504088896340736f;
inline constexpr float log_of_2 = 0.69314718055994530942f;

/// The rows of one head of one sample: token i begins at row(i) and has head_size scalars.
template <class T>
struct head_rows {
    T* first{};
    int stride{}; ///< 32 bits, so that a row's address takes one multiply-add
    int tokens{};
    int head_size{};

    [[nodiscard]] __device__ T* row(int i) const { return first + static_cast<std::int64_t>(i) * stride; }
};

/// The operands of attention; see cuda/attention.cuh for the shapes.
template <class T>
struct attention_operands {
    const T* q{};
    const T* k{};
    const T* v{};
    T* o{};       ///< written by the forward pass
    float* lse{}; ///< written by the forward pass
    int tokens{};
    int keys{};
    int heads{};
    int head_size{};
    float scale{}; ///< the factor of the products of queries and keys

    /// Rows of a head in a tensor of `count` tokens per sample.
    template <class S>
    [[nodiscard]] __device__ head_rows<S> rows(S* tensor, int count, int sample, int head) const {
        const int width = heads * head_size;
        return {tensor + static_cast<std::int64_t>(sample) * count * width + head * head_size, width, count, head_size};
    }
    /// Offset of a head in an array of one number per query, [batch][heads][tokens].
    [[nodiscard]] __device__ std::int64_t numbers_at(int sample, int head) const {
        return (static_cast<std::int64_t>(sample) * heads + head) * tokens;
    }
};

/// The further operands of attention_backward.
template <class T>
struct attention_gradients {
    const T* dout{};
    const float* lse{};
    const float* delta{}; ///< [batch][heads][tokens], sums of dout * o over a head
    T* dq{};
    T* dk{};
    T* dv{};
    /// [parts][batch][keys][width] of dk, then the same of dv: sums over parts of the queries; null for one part.
    float* partial{};
    int parts{1}; ///< that the queries are split into

    /// Rows of a head of part `part` of dk (0) or dv (1); the grid's z counts samples.
    [[nodiscard]] __device__ head_rows<float> partial_rows(const attention_operands<T>& a, int which, int part,
                                                           int sample, int head) const {
        const std::int64_t all = static_cast<std::int64_t>(gridDim.z) * a.keys * a.heads * a.head_size;
        return a.rows(partial + (static_cast<std::int64_t>(which) * parts + part) * all, a.keys, sample, head);
    }
};

/// One of the parts that the queries are split into, at tile boundaries.
struct query_part {
    int index{};
    int parts{};
    int tokens{};
    int tile{};

    [[nodiscard]] __device__ int begin() const { return first_of(index); }
    [[nodiscard]] __device__ int end() const { return min(tokens, first_of(index + 1)); }

private:
    [[nodiscard]] __device__ int first_of(int i) const {
        const int tiles = (tokens + tile - 1) / tile;
        return static_cast<int>(static_cast<std::int64_t>(tiles) * i / parts) * tile;
    }
};

} // namespace pulse::cuda
