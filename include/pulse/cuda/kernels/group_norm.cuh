#pragma once

#include <cstddef>
#include <cstdint>

#include <pulse/cuda/kernels/activations.cuh>
#include <pulse/cuda/kernels/group_norm_place.cuh>
#include <pulse/cuda/launch.cuh>

namespace pulse::cuda {

/// Sums pixels i to i + Round - 1 of a thread; all are read before the first is added. With Keep they are also copied
/// to keep[i * keep_step].
template <int Round, bool Keep, class T, int N>
__device__ void sum_round(const pixel_walk<const T>& x, int i, T* keep, int keep_step, centred_sums<N>& sums) {
    lanes<T, N> read[Round];
#pragma unroll
    for (int u = 0; u < Round; ++u) { read[u] = lanes<T, N>::load(x[i + u]); }
#pragma unroll
    for (int u = 0; u < Round; ++u) {
        sums.add(read[u]);
        if constexpr (Keep) { read[u].store_shared(keep + (i + u) * keep_step); }
    }
}

/// Sums a thread's pixels, in rounds of 8, 4 and 1.
template <bool Keep, class T, int N>
[[nodiscard]] __device__ centred_sums<N> sum_pixels_of(const pixel_walk<const T>& x, int count, T* keep,
                                                       int keep_step) {
    centred_sums<N> sums{};
    if (count != 0) {
        float first[N];
        load_floats(x.at, first);
        sums.start(first);
    }
    int i = 0;
    for (; i + 8 <= count; i += 8) { sum_round<8, Keep>(x, i, keep, keep_step, sums); }
    if (i + 4 <= count) {
        sum_round<4, Keep>(x, i, keep, keep_step, sums);
        i += 4;
    }
#pragma unroll 1
    for (; i < count; ++i) { sum_round<1, Keep>(x, i, keep, keep_step, sums); }
    return sums;
}

/// The moments of every channel of a block's slab over its chunk, from the sums of its threads: `mean_of` and
/// `squares_of` hold one float per channel of the slab; `base` is the first channel that this pass writes.
template <int N>
__device__ void channel_moments(const centred_sums<N>& sums, int count, float pixels, const group_norm_place& place,
                                const thread_rows& block, int base, float* buffer, float* mean_of, float* squares_of) {
    const float own = static_cast<float>(count);
    float values[N];
#pragma unroll
    for (int i = 0; i < N; ++i) { values[i] = fmaf(sums.centre[i], own, sums.sum[i]) / pixels; }
    block.sum(values, buffer, mean_of + base);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const float own_mean = count == 0 ? 0.0f : sums.sum[i] / own;
        const float d = sums.centre[i] + own_mean - mean_of[base + place.column * N + i];
        values[i] = fmaf(own * d, d, fmaf(-sums.sum[i], own_mean, sums.squares[i]));
    }
    block.sum(values, buffer, squares_of + base);
}

/// (x - mean) * slope + beta, then SiLU if `silu`, channel by channel.
template <int N>
struct affine_of_channels {
    float mean[N];
    float slope[N];
    float shift[N];
    bool silu;

    /// `mean_of` and `inverse_of` hold one float per group of the block's slab.
    template <class T>
    __device__ affine_of_channels(const group_norm_input<T>& in, const group_norm_place& place, int channel,
                                  const float* mean_of, const float* inverse_of) {
        silu = in.silu;
        load_floats(in.gamma + channel, slope);
        load_floats(in.beta + channel, shift);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const int group = (channel + i) / in.size - place.first_group;
            mean[i] = mean_of[group];
            slope[i] *= inverse_of[group];
        }
    }
    template <class T>
    [[nodiscard]] __device__ lanes<T, N> operator()(const lanes<T, N>& x) const {
        float y[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float u = fmaf(x[i] - mean[i], slope[i], shift[i]);
            y[i] = silu ? u * sigmoid(u) : u;
        }
        return lanes<T, N>::of(y);
    }
};

/// Reads x once: moments of every group over every chunk, partial [batch][splits][groups].
template <class T, int N>
__global__ void __launch_bounds__(256, 2) group_norm_moments_kernel(group_norm_input<T> in, moments* partial) {
    const group_norm_tiling& t = in.tiling;
    const group_norm_place place(in, static_cast<int>(blockIdx.x));
    const thread_rows block{t.columns, t.rows};
    const int slab = t.walked_channels();
    auto* const mean_of = shared_memory<float>();
    float* const squares_of = mean_of + slab;
    float* const buffer = squares_of + slab;
    const int width = place.last_channel - place.first_channel;
    const auto pixels = static_cast<float>(place.chunk_pixels());
    for (int base = 0; base < width; base += t.columns * N) {
        const int channel = place.first_channel + base + place.column * N;
        const int count = channel < place.last_channel ? place.walked(t.rows) : 0;
        const auto x = walk_sources(in.xa, in.xb, in.channels, in.all_channels, in.pixels, channel, place, t.rows);
        const auto sums = sum_pixels_of<false, T, N>(x, count, nullptr, 0);
        channel_moments(sums, count, pixels, place, block, base, buffer, mean_of, squares_of);
    }
    const int warps = static_cast<int>(blockDim.x) / 32;
    for (int g = static_cast<int>(threadIdx.x) / 32; g < place.last_group - place.first_group; g += warps) {
        const moments whole = union_of_warp(in.size, pixels * static_cast<float>(in.size), [&](int i) {
            return moments_of_part{{mean_of[g * in.size + i], squares_of[g * in.size + i]}, pixels};
        });
        if (threadIdx.x % 32 == 0) {
            partial[(std::int64_t{place.sample} * t.splits + place.split) * in.groups + place.first_group + g] = whole;
        }
    }
}

/// Writes y of pixels i to i - Round + 1 of a thread; all are read before the first is written.
template <int Round, class T, int N>
__device__ void apply_round(const affine_of_channels<N>& map, const pixel_walk<const T>& x, const pixel_walk<T>& y,
                            int i) {
    lanes<T, N> read[Round];
#pragma unroll
    for (int u = 0; u < Round; ++u) { read[u] = lanes<T, N>::load_streaming(x[i - u]); }
#pragma unroll
    for (int u = 0; u < Round; ++u) { map(read[u]).store(y[i - u]); }
}

/// Joins the moments of a group's chunks; called by one warp.
template <class T>
[[nodiscard]] __device__ moments moments_of_group(const group_norm_input<T>& in, const moments* partial, int sample,
                                                  int group) {
    const group_norm_tiling& t = in.tiling;
    const float size = static_cast<float>(in.size);
    return union_of_warp(t.splits, static_cast<float>(in.pixels) * size, [&](int i) {
        const int pixels = min(in.pixels, (i + 1) * t.chunk) - i * t.chunk;
        return moments_of_part{partial[(std::int64_t{sample} * t.splits + i) * in.groups + group],
                               static_cast<float>(pixels) * size};
    });
}

/// Joins the moments of the chunks, then writes y from x. Blocks and pixels run in the reverse order of the first pass,
/// so that what it read last is still in the cache.
template <class T, int N>
__global__ void __launch_bounds__(256, 2)
    group_norm_apply_kernel(group_norm_input<T> in, const moments* partial, T* y, float* statistics) {
    const group_norm_tiling& t = in.tiling;
    const group_norm_place place(in, static_cast<int>(gridDim.x - 1 - blockIdx.x));
    auto* const mean_of = shared_memory<float>();
    float* const inverse_of = mean_of + t.slab_groups;
    const int warps = static_cast<int>(blockDim.x) / 32;
    const float total = static_cast<float>(in.pixels) * static_cast<float>(in.size);
    for (int g = static_cast<int>(threadIdx.x) / 32; g < place.last_group - place.first_group; g += warps) {
        const int group = place.first_group + g;
        const moments whole = moments_of_group(in, partial, place.sample, group);
        if (threadIdx.x % 32 == 0) {
            mean_of[g] = whole.mean;
            inverse_of[g] = rsqrtf(whole.squares / total + in.epsilon);
            if (place.split == 0) {
                float* const row = statistics + (std::int64_t{place.sample} * in.groups + group) * 2;
                row[0] = mean_of[g];
                row[1] = inverse_of[g];
            }
        }
    }
    __syncthreads();
    const int width = place.last_channel - place.first_channel;
    for (int base = 0; base < width; base += t.columns * N) {
        const int channel = place.first_channel + base + place.column * N;
        if (channel >= place.last_channel) { continue; }
        const affine_of_channels<N> map(in, place, channel, mean_of, inverse_of);
        const auto x = walk_sources(in.xa, in.xb, in.channels, in.all_channels, in.pixels, channel, place, t.rows);
        const pixel_walk<T> to(y, in.pixels, in.all_channels, channel, place, t.rows);
        int left = place.walked(t.rows);
        for (; left >= 8; left -= 8) { apply_round<8>(map, x, to, left - 1); }
        if (left >= 4) {
            apply_round<4>(map, x, to, left - 1);
            left -= 4;
        }
#pragma unroll 1
        for (; left > 0; --left) { apply_round<1>(map, x, to, left - 1); }
    }
}

/// Both passes of a slab that stays in shared memory.
template <class T, int N>
__global__ void __launch_bounds__(512, 1) group_norm_resident_kernel(group_norm_input<T> in, T* y, float* statistics) {
    const group_norm_tiling& t = in.tiling;
    const group_norm_place place(in, static_cast<int>(blockIdx.x));
    const thread_rows block{t.columns, t.rows};
    const int slab = t.walked_channels();
    auto* const kept = shared_memory<T>();
    auto* const mean_of = reinterpret_cast<float*>(shared_memory<unsigned char>() + t.kept_bytes);
    float* const squares_of = mean_of + slab;
    float* const group_mean = squares_of + slab;
    float* const group_inverse = group_mean + t.slab_groups;
    float* const buffer = group_inverse + t.slab_groups;
    const auto pixels = static_cast<float>(in.pixels);
    const int channel = place.first_channel + place.column * N;
    const int count = channel < place.last_channel ? place.walked(t.rows) : 0;
    T* const own = kept + (place.row * t.columns + place.column) * N;
    const int own_step = t.rows * t.columns * N;
    const auto x = walk_sources(in.xa, in.xb, in.channels, in.all_channels, in.pixels, channel, place, t.rows);
    const auto sums = sum_pixels_of<true, T, N>(x, count, own, own_step);
    channel_moments(sums, count, pixels, place, block, 0, buffer, mean_of, squares_of);
    const int warps = static_cast<int>(blockDim.x) / 32;
    const float total = pixels * static_cast<float>(in.size);
    for (int g = static_cast<int>(threadIdx.x) / 32; g < place.last_group - place.first_group; g += warps) {
        const moments whole = union_of_warp(in.size, total, [&](int i) {
            return moments_of_part{{mean_of[g * in.size + i], squares_of[g * in.size + i]}, pixels};
        });
        if (threadIdx.x % 32 == 0) {
            group_mean[g] = whole.mean;
            group_inverse[g] = rsqrtf(whole.squares / total + in.epsilon);
            float* const row = statistics + (std::int64_t{place.sample} * in.groups + place.first_group + g) * 2;
            row[0] = group_mean[g];
            row[1] = group_inverse[g];
        }
    }
    __syncthreads();
    if (count == 0) { return; }
    const affine_of_channels<N> map(in, place, channel, group_mean, group_inverse);
    const pixel_walk<T> to(y, in.pixels, in.all_channels, channel, place, t.rows);
#pragma unroll 4
    for (int i = 0; i < count; ++i) { map(lanes<T, N>::load(own + i * own_step)).store(to[i]); }
}

/// Bytes of scratch of group_norm, on any device.
[[nodiscard]] inline std::size_t group_norm_scratch_bytes(const group_norm_shape& s, int batch) {
    return sizeof(moments) * static_cast<std::size_t>(batch) * group_norm_most_splits(s, batch) * s.groups;
}

/// Scalars per access to GroupNorm's tensors: a pack if both sources have whole packs of channels and all addresses
/// allow it, else 1.
template <class T, class... Pointers>
[[nodiscard]] int group_norm_width(const group_norm_shape& s, const Pointers*... addresses) {
    return is_packable<T>(s.channels, addresses...) && s.second_channels % pack_size<T> == 0 ? pack_size<T> : 1;
}

/// y = SiLU(gamma * (x - mean) / sqrt(var + epsilon) + beta), with SiLU only if the shape asks for it, over
/// channels-last pixels of one tensor or of the concatenation of two.
///
/// xa [batch][pixels][channels], xb [batch][pixels][second_channels] (null with one source), gamma and beta
/// [all_channels], y [batch][pixels][all_channels], statistics [batch][groups][2] (mean, 1/sqrt(var + epsilon)). Must
/// move at least x and y once: 2 e n bytes; does so if a slab fits into shared memory, else reads x twice. Scratch:
/// group_norm_scratch_bytes. Throws input_error for an invalid shape.
template <class T>
void group_norm(const queue& on, const group_norm_shape& s, int batch, const T* xa, const T* xb, const T* gamma,
                const T* beta, T* y, float* statistics) {
    check_group_norm(s, batch);
    const int width = group_norm_width<T>(s, xa, xb, gamma, beta, y);
    const auto bytes = static_cast<int>(sizeof(T));
    const auto t = tile_group_norm(s, batch, width, bytes, 1, on.multiprocessors);
    const group_norm_input<T> in(s, t, xa, xb, gamma, beta);
    const dim3 grid(static_cast<unsigned>(t.blocks(batch)));
    const dim3 block(static_cast<unsigned>(t.threads()));
    const std::size_t shared = t.shared_bytes();
    with_lanes<T>(t.width != 1, [&]<int N>() {
        if (t.resident) {
            launch(group_norm_resident_kernel<T, N>, grid, block, shared, on.stream, in, y, statistics);
            return;
        }
        auto* const partial = reinterpret_cast<moments*>(on.scratch);
        launch(group_norm_moments_kernel<T, N>, grid, block, shared, on.stream, in, partial);
        launch(group_norm_apply_kernel<T, N>, grid, block, 2 * sizeof(float) * t.slab_groups, on.stream, in, partial, y,
               statistics);
    });
}

} // namespace pulse::cuda
