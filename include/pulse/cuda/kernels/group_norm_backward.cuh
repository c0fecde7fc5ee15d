#pragma once

#include <cstddef>
#include <cstdint>

#include <pulse/cuda/kernels/column_sums.cuh>
#include <pulse/cuda/kernels/group_norm.cuh>

namespace pulse::cuda {

/// The operands of the backward kernels, besides the sources.
template <class T>
struct group_norm_gradient {
    const float* statistics{};
    const T* dy{};
    T* dxa{};
    T* dxb{};
    const T* before{}; ///< what the gradient in dxa is added to: the residual or dxa itself; null: none, as for dxb
    float* affine{};   ///< [batch][splits][2][all channels]: sums of du * xhat, then of du
    float* groups{};   ///< [batch][splits][groups][2]: sums of gamma du, then of gamma du xhat

    /// The address in `before` for an address in dxa.
    [[nodiscard]] const __device__ T* before_at(const T* dx) const { return before + (dx - dxa); }
};

/// The constants of one thread's channels, and dL/du from x and dy.
template <int N>
struct channel_gradient {
    float mean[N];
    float inverse[N];
    float gamma[N];
    float beta[N];
    bool silu;

    template <class T>
    __device__ channel_gradient(const group_norm_input<T>& in, int sample, int channel, const float* statistics) {
        load_floats(in.gamma + channel, gamma);
        silu = in.silu;
        load_floats(in.beta + channel, beta);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float* const of = statistics + (std::int64_t{sample} * in.groups + (channel + i) / in.size) * 2;
            mean[i] = of[0];
            inverse[i] = of[1];
        }
    }
    [[nodiscard]] __device__ float normal(int i, float x) const { return (x - mean[i]) * inverse[i]; }
    [[nodiscard]] __device__ float du(int i, float normal, float dy) const {
        return silu ? dy * silu_slope(fmaf(normal, gamma[i], beta[i])) : dy;
    }
};

/// Sums over a thread's pixels.
template <int N>
struct gradient_sums {
    float du[N]{};
    float product[N]{}; ///< of du * xhat

    template <class T>
    __device__ void add(const channel_gradient<N>& of, const lanes<T, N>& x, const lanes<T, N>& dy) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float normal = of.normal(i, x[i]);
            const float g = of.du(i, normal, dy[i]);
            du[i] += g;
            product[i] = fmaf(g, normal, product[i]);
        }
    }
};

/// Writes the slab's channel sums to `affine` and those of its groups to shared memory: sums of gamma du and of gamma
/// du xhat over the chunk. `du_of` and `product_of` hold one float per channel of the slab.
template <class T>
__device__ void join_gradients(const group_norm_input<T>& in, const group_norm_place& place, const float* du_of,
                               const float* product_of, float* affine, float* group_sums) {
    const int threads = static_cast<int>(blockDim.x);
    const int thread = static_cast<int>(threadIdx.x);
    const std::int64_t row = (std::int64_t{place.sample} * in.tiling.splits + place.split) * 2 * in.all_channels;
    for (int c = thread; c < place.last_channel - place.first_channel; c += threads) {
        affine[row + place.first_channel + c] = product_of[c];
        affine[row + in.all_channels + place.first_channel + c] = du_of[c];
    }
    for (int g = thread / 32; g < place.last_group - place.first_group; g += threads / 32) {
        float sum = 0.0f;
        float product = 0.0f;
        for (int i = thread % 32; i < in.size; i += 32) {
            const int c = g * in.size + i;
            const float gamma = to_float(in.gamma[place.first_channel + c]);
            sum = fmaf(gamma, du_of[c], sum);
            product = fmaf(gamma, product_of[c], product);
        }
        sum = sum_of_warp(sum);
        product = sum_of_warp(product);
        if (thread % 32 == 0) {
            group_sums[2 * g] = sum;
            group_sums[2 * g + 1] = product;
        }
    }
    __syncthreads();
}

/// dx = (gamma du - mean(gamma du) - xhat mean(gamma du xhat)) / sigma.
template <int N>
struct input_gradient {
    float offset[N];
    float product[N];

    /// `group_sums` holds two floats per group of the slab, as join_gradients writes them, over `total` scalars.
    template <class T>
    __device__ input_gradient(const group_norm_input<T>& in, const group_norm_place& place, int channel,
                              const float* group_sums, float total) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const int g = (channel + i) / in.size - place.first_group;
            offset[i] = group_sums[2 * g] / total;
            product[i] = group_sums[2 * g + 1] / total;
        }
    }
    template <class T>
    __device__ void write(const channel_gradient<N>& of, const lanes<T, N>& x, const lanes<T, N>& dy, T* dx,
                          const group_norm_gradient<T>& d, bool adds) const {
        float made[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float normal = of.normal(i, x[i]);
            const float g = of.du(i, normal, dy[i]);
            made[i] = (fmaf(of.gamma[i], g, -offset[i]) - normal * product[i]) * of.inverse[i];
        }
        if (adds) {
            const auto before = lanes<T, N>::load(d.before_at(dx));
#pragma unroll
            for (int i = 0; i < N; ++i) { made[i] += before[i]; }
        }
        lanes<T, N>::of(made).store(dx);
    }
};

/// Reads x and dy once: sums of every channel and group over every chunk.
template <class T, int N>
__global__ void __launch_bounds__(256, 2)
    group_norm_gradient_sums_kernel(group_norm_input<T> in, group_norm_gradient<T> d) {
    const group_norm_tiling& t = in.tiling;
    const group_norm_place place(in, static_cast<int>(blockIdx.x));
    const thread_rows block{t.columns, t.rows};
    auto* const du_of = shared_memory<float>();
    float* const product_of = du_of + t.walked_channels();
    float* const group_sums = product_of + t.walked_channels();
    float* const buffer = group_sums + 2 * t.slab_groups;
    const int width = place.last_channel - place.first_channel;
    for (int base = 0; base < width; base += t.columns * N) {
        const int channel = place.first_channel + base + place.column * N;
        const int count = channel < place.last_channel ? place.walked(t.rows) : 0;
        gradient_sums<N> sums;
        if (count != 0) {
            const channel_gradient<N> of(in, place.sample, channel, d.statistics);
            const auto x = walk_sources(in.xa, in.xb, in.channels, in.all_channels, in.pixels, channel, place, t.rows);
            const pixel_walk<const T> dy(d.dy, in.pixels, in.all_channels, channel, place, t.rows);
            constexpr int round = 3;
            int i = 0;
            for (; i + round <= count; i += round) {
                lanes<T, N> read_x[round];
                lanes<T, N> read_dy[round];
#pragma unroll
                for (int u = 0; u < round; ++u) {
                    read_x[u] = lanes<T, N>::load(x[i + u]);
                    read_dy[u] = lanes<T, N>::load(dy[i + u]);
                }
#pragma unroll
                for (int u = 0; u < round; ++u) { sums.add(of, read_x[u], read_dy[u]); }
            }
#pragma unroll 1
            for (; i < count; ++i) { sums.add(of, lanes<T, N>::load(x[i]), lanes<T, N>::load(dy[i])); }
        }
        block.sum(sums.du, buffer, du_of + base);
        block.sum(sums.product, buffer, product_of + base);
    }
    join_gradients(in, place, du_of, product_of, d.affine, group_sums);
    float* const to =
        d.groups + ((std::int64_t{place.sample} * t.splits + place.split) * in.groups + place.first_group) * 2;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * (place.last_group - place.first_group);
         i += static_cast<int>(blockDim.x)) {
        to[i] = group_sums[i];
    }
}

/// Joins the sums of the chunks, then writes dx from x and dy, in the reverse order of the first pass.
template <class T, int N>
__global__ void __launch_bounds__(256, 2)
    group_norm_input_gradient_kernel(group_norm_input<T> in, group_norm_gradient<T> d) {
    const group_norm_tiling& t = in.tiling;
    const group_norm_place place(in, static_cast<int>(gridDim.x - 1 - blockIdx.x));
    auto* const group_sums = shared_memory<float>();
    const int warps = static_cast<int>(blockDim.x) / 32;
    const int values = 2 * (place.last_group - place.first_group);
    for (int i = static_cast<int>(threadIdx.x) / 32; i < values; i += warps) {
        const float* const from =
            d.groups + (std::int64_t{place.sample} * t.splits * in.groups + place.first_group) * 2 + i;
        float sum = 0.0f;
        for (int split = static_cast<int>(threadIdx.x) % 32; split < t.splits; split += 32) {
            sum += from[std::int64_t{split} * in.groups * 2];
        }
        sum = sum_of_warp(sum);
        if (threadIdx.x % 32 == 0) { group_sums[i] = sum; }
    }
    __syncthreads();
    const float total = static_cast<float>(in.pixels) * static_cast<float>(in.size);
    const int width = place.last_channel - place.first_channel;
    for (int base = 0; base < width; base += t.columns * N) {
        const int channel = place.first_channel + base + place.column * N;
        if (channel >= place.last_channel) { continue; }
        const channel_gradient<N> of(in, place.sample, channel, d.statistics);
        const input_gradient<N> map(in, place, channel, group_sums, total);
        const auto x = walk_sources(in.xa, in.xb, in.channels, in.all_channels, in.pixels, channel, place, t.rows);
        const pixel_walk<const T> dy(d.dy, in.pixels, in.all_channels, channel, place, t.rows);
        const auto dx = walk_sources(d.dxa, d.dxb, in.channels, in.all_channels, in.pixels, channel, place, t.rows);
        const bool adds = d.before != nullptr && channel < in.channels;
        constexpr int round = 2;
        int left = place.walked(t.rows);
        for (; left >= round; left -= round) {
            lanes<T, N> read_x[round];
            lanes<T, N> read_dy[round];
#pragma unroll
            for (int u = 0; u < round; ++u) {
                read_x[u] = lanes<T, N>::load_streaming(x[left - 1 - u]);
                read_dy[u] = lanes<T, N>::load_streaming(dy[left - 1 - u]);
            }
#pragma unroll
            for (int u = 0; u < round; ++u) { map.write(of, read_x[u], read_dy[u], dx[left - 1 - u], d, adds); }
        }
        if (left != 0) {
            map.write(of, lanes<T, N>::load_streaming(x[0]), lanes<T, N>::load_streaming(dy[0]), dx[0], d, adds);
        }
    }
}

/// Both passes of a slab whose x and dy stay in shared memory.
template <class T, int N>
__global__ void __launch_bounds__(512, 1)
    group_norm_resident_gradient_kernel(group_norm_input<T> in, group_norm_gradient<T> d) {
    const group_norm_tiling& t = in.tiling;
    const group_norm_place place(in, static_cast<int>(blockIdx.x));
    const thread_rows block{t.columns, t.rows};
    auto* const kept_x = shared_memory<T>();
    auto* const kept_dy = reinterpret_cast<T*>(shared_memory<unsigned char>() + t.kept_bytes / 2);
    auto* const du_of = reinterpret_cast<float*>(shared_memory<unsigned char>() + t.kept_bytes);
    float* const product_of = du_of + t.walked_channels();
    float* const group_sums = product_of + t.walked_channels();
    float* const buffer = group_sums + 2 * t.slab_groups;
    const int channel = place.first_channel + place.column * N;
    const int count = channel < place.last_channel ? place.walked(t.rows) : 0;
    const int own = (place.row * t.columns + place.column) * N;
    const int own_step = t.rows * t.columns * N;
    gradient_sums<N> sums;
    if (count != 0) {
        const channel_gradient<N> of(in, place.sample, channel, d.statistics);
        const auto x = walk_sources(in.xa, in.xb, in.channels, in.all_channels, in.pixels, channel, place, t.rows);
        const pixel_walk<const T> dy(d.dy, in.pixels, in.all_channels, channel, place, t.rows);
#pragma unroll 2
        for (int i = 0; i < count; ++i) {
            const auto one_x = lanes<T, N>::load(x[i]);
            const auto one_dy = lanes<T, N>::load(dy[i]);
            sums.add(of, one_x, one_dy);
            one_x.store_shared(kept_x + own + i * own_step);
            one_dy.store_shared(kept_dy + own + i * own_step);
        }
    }
    block.sum(sums.du, buffer, du_of);
    block.sum(sums.product, buffer, product_of);
    join_gradients(in, place, du_of, product_of, d.affine, group_sums);
    if (count == 0) { return; }
    const float total = static_cast<float>(in.pixels) * static_cast<float>(in.size);
    const channel_gradient<N> of(in, place.sample, channel, d.statistics);
    const input_gradient<N> map(in, place, channel, group_sums, total);
    const auto dx = walk_sources(d.dxa, d.dxb, in.channels, in.all_channels, in.pixels, channel, place, t.rows);
    const bool adds = d.before != nullptr && channel < in.channels;
#pragma unroll 2
    for (int i = 0; i < count; ++i) {
        map.write(of, lanes<T, N>::load(kept_x + own + i * own_step), lanes<T, N>::load(kept_dy + own + i * own_step),
                  dx[i], d, adds);
    }
}

/// Bytes of scratch of group_norm_backward, on any device.
[[nodiscard]] inline std::size_t group_norm_backward_scratch_bytes(const group_norm_shape& s, int batch) {
    const auto rows = static_cast<std::size_t>(batch) * group_norm_most_splits(s, batch);
    const std::size_t sums = sizeof(float) * rows * 2 * (static_cast<std::size_t>(s.all_channels()) + s.groups);
    return (sums + 255) / 256 * 256 + column_sums_bytes(1, static_cast<std::int64_t>(rows), 2 * s.all_channels());
}

/// Gradients of group_norm: with u = gamma xhat + beta and du = dL/du,
/// dx = (gamma du - mean(gamma du) - xhat mean(gamma du xhat)) / sigma, dgamma = (or +=) sum of du xhat,
/// dbeta = (or +=) sum of du.
///
/// Sources, affine and statistics as in group_norm; dy [batch][pixels][all_channels]; dxa is written or added to, or
/// written plus the residual if that is not null, and dxb is always written; dgamma and dbeta [all_channels] both
/// written or both added to. Must move at least x, dy and dx once: 3 e n bytes (4 e n with a sum); does so if a slab of
/// x and of dy fits into shared memory, else reads x and dy twice. Scratch: group_norm_backward_scratch_bytes. Throws
/// input_error for an invalid shape.
template <class T>
void group_norm_backward(const queue& on, const group_norm_shape& s, int batch, const T* xa, const T* xb,
                         const T* gamma, const T* beta, const float* statistics, const T* dy, T* dxa, T* dxb,
                         gradient_place<float> dgamma, gradient_place<float> dbeta, into how,
                         const T* residual = nullptr) {
    check_group_norm(s, batch);
    const T* const before = residual != nullptr || how == into::write ? residual : dxa;
    const int width = group_norm_width<T>(s, xa, xb, gamma, beta, dy, dxa, dxb, before);
    const auto t = tile_group_norm(s, batch, width, static_cast<int>(sizeof(T)), 2, on.multiprocessors);
    const group_norm_input<T> in(s, t, xa, xb, gamma, beta);
    const std::int64_t rows = std::int64_t{batch} * t.splits;
    auto* const affine = reinterpret_cast<float*>(on.scratch);
    float* const groups = affine + rows * 2 * s.all_channels();
    const group_norm_gradient<T> d{statistics, dy, dxa, dxb, before, affine, groups};
    const dim3 grid(static_cast<unsigned>(t.blocks(batch)));
    const dim3 block(static_cast<unsigned>(t.threads()));
    with_lanes<T>(t.width != 1, [&]<int N>() {
        if (t.resident) {
            launch(group_norm_resident_gradient_kernel<T, N>, grid, block, t.shared_bytes(), on.stream, in, d);
            return;
        }
        launch(group_norm_gradient_sums_kernel<T, N>, grid, block, t.shared_bytes(), on.stream, in, d);
        launch(group_norm_input_gradient_kernel<T, N>, grid, block, 2 * sizeof(float) * t.slab_groups, on.stream, in,
               d);
    });
    const std::size_t used = sizeof(float) * static_cast<std::size_t>(rows) * 2 * (s.all_channels() + s.groups);
    auto* const more = reinterpret_cast<float*>(on.scratch + (used + 255) / 256 * 256);
    if (!dgamma.wanted()) { return; }
    column_sums<float, float>(on, 1, rows, 2 * s.all_channels(), affine, {dgamma.to, dbeta.to, s.all_channels()},
                              dgamma.how, more);
}

} // namespace pulse::cuda
