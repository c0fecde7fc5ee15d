#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <pulse/cuda/launch.cuh>
#include <pulse/train/random.hpp>

namespace pulse::cuda {

/// One stream of random numbers under one seed, in the form that kernels use: the counterpart of train::random_source.
struct random_key {
    std::uint32_t key_low{};
    std::uint32_t key_high{};
    std::uint32_t stream_low{};
    std::uint32_t stream_high{};

    constexpr random_key(std::uint64_t seed, std::uint64_t stream) noexcept :
        key_low(static_cast<std::uint32_t>(seed)), key_high(static_cast<std::uint32_t>(seed >> 32U)),
        stream_low(static_cast<std::uint32_t>(stream)), stream_high(static_cast<std::uint32_t>(stream >> 32U)) {}
    constexpr random_key(std::uint64_t seed, train::random_stream stream) noexcept :
        random_key(seed, static_cast<std::uint64_t>(stream)) {}
};

/// The four words of one counter: the same as from train::random_source::block (Salmon et al., SC 2011).
__host__ __device__ inline uint4 philox4x32(std::uint64_t counter, const random_key& key) {
    uint4 c = make_uint4(static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32U),
                         key.stream_low, key.stream_high);
    std::uint32_t key_0 = key.key_low;
    std::uint32_t key_1 = key.key_high;
    for (int round = 0; round != 10; ++round) {
        const std::uint64_t product_0 = std::uint64_t{0xD2511F53U} * c.x;
        const std::uint64_t product_1 = std::uint64_t{0xCD9E8D57U} * c.z;
        c = make_uint4(
            static_cast<std::uint32_t>(product_1 >> 32U) ^ c.y ^ key_0, static_cast<std::uint32_t>(product_1),
            static_cast<std::uint32_t>(product_0 >> 32U) ^ c.w ^ key_1, static_cast<std::uint32_t>(product_0));
        key_0 += 0x9E3779B9U;
        key_1 += 0xBB67AE85U;
    }
    return c;
}

/// Two normal numbers from two words (Box and Muller 1958). They differ from those of train::random_source by less than
/// 2^-20 of the pair's radius: the host rounds the angle to float and computes the radius in double.
__host__ __device__ inline float2 normal_pair(std::uint32_t radius_word, std::uint32_t angle_word) {
    // log((word + 1/2) / 2^32), from the nearer end of the interval, so that nothing cancels
    const bool upper = radius_word >= 0x80000000U;
    const float distance = (static_cast<float>(upper ? ~radius_word : radius_word) + 0.5f) * 0x1p-32f;
    const float log = upper ? log1pf(-distance) : logf(distance);
    const float radius = sqrtf(-2.0f * log);
    // the angle in units of pi, in [-1, 1)
    const float turn = static_cast<float>(static_cast<std::int32_t>(angle_word)) * 0x1p-31f;
    float sine = 0;
    float cosine = 0;
    sincospif(turn, &sine, &cosine);
    return make_float2(radius * cosine, radius * sine);
}

/// Normal numbers 4 * counter to 4 * counter + 3 of the stream.
__host__ __device__ inline float4 normal_four(std::uint64_t counter, const random_key& key) {
    const uint4 words = philox4x32(counter, key);
    const float2 first = normal_pair(words.x, words.y);
    const float2 second = normal_pair(words.z, words.w);
    return make_float4(first.x, first.y, second.x, second.y);
}

/// Normal number `index` of the stream.
__host__ __device__ inline float normal_one(std::uint64_t index, const random_key& key) {
    const uint4 words = philox4x32(index / 4, key);
    const float2 pair = index % 4 < 2 ? normal_pair(words.x, words.y) : normal_pair(words.z, words.w);
    return index % 2 == 0 ? pair.x : pair.y;
}

} // namespace pulse::cuda
