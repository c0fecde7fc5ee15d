#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/cuda/kernels/block_sums.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/runtime/text_backend.hpp>

namespace pulse::cuda {

/// The operands of masked_attention; mask and bias may be null.
template <class T>
struct masked_operands {
    const T* q;
    const T* k;
    const T* v;
    const float* mask;
    const T* bias;
    T* o;
    int tokens;
    int heads;
    int head_size;
    float scale;
    bool causal;
};

inline constexpr int masked_warps = 4;
inline constexpr int masked_warp_queries = 4; ///< queries that a warp holds in registers
inline constexpr int masked_block_queries = masked_warps * masked_warp_queries;
inline constexpr int masked_keys = 32; ///< of a tile, one per lane

/// Shared memory of a block: its queries, a tile of keys, one of values and the weights of the tile.
[[nodiscard]] constexpr std::size_t masked_attention_shared_bytes(int head_size) noexcept {
    const std::size_t rows = masked_block_queries + 2 * masked_keys;
    const std::size_t padded = static_cast<std::size_t>(head_size) + 1; // so that lanes hit different banks
    return sizeof(float) * (rows * padded + masked_block_queries * masked_keys);
}

/// Online softmax over tiles of keys (Milakov and Gimelshein 2018), in float. A lane owns one key when scores are
/// computed, and `Features` features when values are summed.
template <class T, int Features>
__global__ void __launch_bounds__(masked_warps * 32) masked_attention_kernel(masked_operands<T> a) {
    constexpr int mine = masked_warp_queries;
    const int stride = a.head_size + 1;
    auto* const queries = shared_memory<float>(); // [masked_block_queries][stride]
    float* const keys = queries + masked_block_queries * stride;
    float* const values = keys + masked_keys * stride;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    float* const weights = values + masked_keys * stride + warp * mine * masked_keys;
    const int head = static_cast<int>(blockIdx.y);
    const int sample = static_cast<int>(blockIdx.z);
    const int first_query = static_cast<int>(blockIdx.x) * masked_block_queries;
    const std::int64_t width = std::int64_t{a.heads} * a.head_size;
    const std::int64_t begin = sample * (a.tokens * width) + std::int64_t{head} * a.head_size;
    // Rows beyond the text repeat its last token; they are never stored.
    const auto stage = [&](const T* from, int first, int rows, float factor, float* to) {
        for (int at = static_cast<int>(threadIdx.x); at < rows * a.head_size; at += masked_warps * 32) {
            const int row = at / a.head_size;
            const int feature = at % a.head_size;
            const int token = min(first + row, a.tokens - 1);
            to[row * stride + feature] = factor * to_float(from[begin + token * width + feature]);
        }
    };
    stage(a.q, first_query, masked_block_queries, a.scale, queries);
    float sums[mine][Features]{};
    float greatest[mine];
    float total[mine]; // of the lane's own weights
#pragma unroll
    for (int r = 0; r < mine; ++r) {
        greatest[r] = -INFINITY;
        total[r] = 0.0f;
    }
    const int all = a.causal ? min(a.tokens, first_query + masked_block_queries) : a.tokens;
    for (int first = 0; first < all; first += masked_keys) {
        __syncthreads(); // all reads of the previous tile are done
        stage(a.k, first, masked_keys, 1.0f, keys);
        stage(a.v, first, masked_keys, 1.0f, values);
        __syncthreads();
        const int key = first + lane;
        float scores[mine]{};
        const float* const own_key = keys + lane * stride;
        const float* const own_queries = queries + warp * mine * stride;
        for (int d = 0; d < a.head_size; ++d) {
#pragma unroll
            for (int r = 0; r < mine; ++r) { scores[r] = fmaf(own_queries[r * stride + d], own_key[d], scores[r]); }
        }
        const bool counts =
            key < a.tokens && (a.mask == nullptr || a.mask[std::int64_t{sample} * a.tokens + key] != 0.0f);
#pragma unroll
        for (int r = 0; r < mine; ++r) {
            const int query = min(first_query + warp * mine + r, a.tokens - 1);
            if (a.bias != nullptr && key < a.tokens) {
                scores[r] += to_float(a.bias[std::int64_t{key - query + a.tokens - 1} * a.heads + head]);
            }
            if (!counts) { scores[r] = -FLT_MAX; }
            if (key >= a.tokens || (a.causal && key > query)) { scores[r] = -INFINITY; }
            float most = scores[r];
#pragma unroll
            for (int apart = 16; apart != 0; apart /= 2) {
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart));
            }
            // Every query sees a key of the first tile, so this is finite.
            most = fmaxf(greatest[r], most);
            const float shrink = expf(greatest[r] - most);
            const float weight = expf(scores[r] - most);
            greatest[r] = most;
            total[r] = fmaf(total[r], shrink, weight);
            weights[r * masked_keys + lane] = weight;
#pragma unroll
            for (int f = 0; f < Features; ++f) { sums[r][f] *= shrink; }
        }
        __syncwarp();
        for (int j = 0; j < masked_keys; ++j) {
#pragma unroll
            for (int f = 0; f < Features; ++f) {
                const int feature = lane + 32 * f;
                const float value = feature < a.head_size ? values[j * stride + feature] : 0.0f;
#pragma unroll
                for (int r = 0; r < mine; ++r) { sums[r][f] = fmaf(weights[r * masked_keys + j], value, sums[r][f]); }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < mine; ++r) {
        const float inverse = 1.0f / sum_of_warp(total[r]);
        const int query = first_query + warp * mine + r;
#pragma unroll
        for (int f = 0; f < Features; ++f) {
            const int feature = lane + 32 * f;
            if (query < a.tokens && feature < a.head_size) {
                a.o[begin + query * width + feature] = from_float<T>(sums[r][f] * inverse);
            }
        }
    }
}

/// masked_attention as text_backend defines it: q, k, v and o [batch][tokens][width], mask [batch][tokens] in float,
/// bias [distances][heads]; mask and bias may be null.
///
/// Products are computed in float, without tensor cores: they are 1 to 3 % of the arithmetic of a text encoder with
/// hundreds of tokens. Throws input_error on sizes below 1, heads over 256 features, and over 65535 heads or samples.
template <class T>
void masked_attention(const queue& on, const masked_attention_shape& s, int batch, const T* q, const T* k, const T* v,
                      const float* mask, const T* bias, T* o) {
    if (batch < 1 || batch > 65535 || s.tokens < 1 || s.heads < 1 || s.heads > 65535 || s.head_size < 1 ||
        s.head_size > 256) {
        throw input_error("masked_attention: " + std::to_string(s.tokens) + " tokens, " + std::to_string(s.heads) +
                          " heads of " + std::to_string(s.head_size) + ", batch " + std::to_string(batch) +
                          "; heads and batch must be from 1 to 65535, head_size from 1 to 256, tokens at least 1");
    }
    const masked_operands<T> operands{
        q, k, v, mask, bias, o, s.tokens, s.heads, s.head_size, static_cast<float>(s.scale), s.causal};
    const dim3 grid(static_cast<unsigned>((s.tokens + masked_block_queries - 1) / masked_block_queries),
                    static_cast<unsigned>(s.heads), static_cast<unsigned>(batch));
    launch(s.head_size <= 64 ? masked_attention_kernel<T, 2> : masked_attention_kernel<T, 8>, grid,
           dim3(masked_warps * 32), masked_attention_shared_bytes(s.head_size), on.stream, operands);
}

} // namespace pulse::cuda
