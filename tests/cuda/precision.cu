#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>

#include <device_array.hpp>

namespace cuda = pulse::cuda;
using pulse::test::device_array;
using pulse::test::device_queue;

namespace {

template <class T>
__global__ void round_kernel(const float* x, std::int64_t n, T* y) {
    const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i < n) { y[i] = cuda::from_float<T>(x[i]); }
}

template <class T>
__global__ void double_packs_kernel(const T* x, std::int64_t packs, T* y, T* z) {
    const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i >= packs) { return; }
    const std::int64_t at = i * cuda::pack_size<T>;
    const cuda::pack<T> in = cuda::load_pack_streaming(x + at);
    cuda::pack<T> out;
    for (int k = 0; k < cuda::pack_size<T>; ++k) { out.set(k, 2.0f * in.get(k)); }
    cuda::store_pack_streaming(y + at, out);
    cuda::store_pack(z + at, cuda::load_pack(x + at));
}

/// Floats of every exponent, including special values and halfway cases of both 16-bit types.
std::vector<float> many_floats(std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> values{0.0f,
                              -0.0f,
                              65504.0f,
                              65519.99f,
                              65520.0f,
                              3.3895314e38f,
                              3.4e38f,
                              5.9604645e-8f,
                              2.9802322e-8f,
                              2.98023259e-8f,
                              1e-45f,
                              std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity()};
    for (int i = 0; i < 3000; ++i) {
        const auto bits = static_cast<std::uint32_t>(random());
        const auto exponent = bits >> 23 & 0xffu;
        if (exponent == 0xff) { continue; }
        values.push_back(std::bit_cast<float>(bits));
        values.push_back(std::bit_cast<float>((bits & 0xffff0000u) | 0x8000u)); // halfway between two bfloat16
        values.push_back(std::bit_cast<float>(((bits & 0x807fe000u) | 0x1000u) + ((113u + bits % 28) << 23)));
    }
    return values;
}

/// The nearest value with `mantissa` stored bits and exponents from `least` (subnormal below), ties to even, computed
/// in double.
double nearest(double x, int mantissa, int least, double largest) {
    if (x == 0 || std::isinf(x)) { return x; }
    int exponent = 0;
    std::frexp(x, &exponent);
    const int ulp = std::max(exponent - 1, least) - mantissa;
    const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -ulp)), ulp);
    return std::abs(rounded) > largest ? std::copysign(std::numeric_limits<double>::infinity(), x) : rounded;
}

template <class T>
double nearest_of(double x) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) { return nearest(x, 7, -126, 3.3895313892515355e38); }
    if constexpr (std::is_same_v<T, __half>) { return nearest(x, 10, -14, 65504); }
    return x;
}

} // namespace

TEST_CASE_TEMPLATE("scalars are the nearest of their type, ties to even", T, __nv_bfloat16, __half, float) {
    const std::vector<float> values = many_floats(11);
    const device_array<float> x(values);
    const device_array<T> y(values.size());
    const device_queue queue;
    const auto n = static_cast<std::int64_t>(values.size());
    cuda::launch(round_kernel<T>, static_cast<unsigned>((n + 127) / 128), 128, 0, queue.stream(), x.data(), n,
                 y.data());
    const std::vector<double> rounded = y.download(queue.stream());
    CHECK(y.intact());
    for (std::size_t i = 0; i < values.size(); ++i) {
        CAPTURE(values[i]);
        CHECK(rounded[i] == nearest_of<T>(static_cast<double>(values[i])));
        // the host rounds the same way
        CHECK(static_cast<double>(cuda::to_float(cuda::from_float<T>(values[i]))) == rounded[i]);
        CHECK(cuda::to_float(cuda::from_float<T>(static_cast<float>(rounded[i]))) == static_cast<float>(rounded[i]));
    }
    CHECK(std::isnan(cuda::to_float(cuda::from_float<T>(std::nanf("")))));
}

TEST_CASE_TEMPLATE("packs hold 16 bytes and travel whole", T, __nv_bfloat16, __half, float) {
    constexpr int packs = 37;
    constexpr std::size_t n = packs * cuda::pack_size<T>;
    static_assert(sizeof(cuda::pack<T>) == 16 && alignof(cuda::pack<T>) == 16);
    std::mt19937 random(5);
    std::uniform_real_distribution<double> uniform(-4, 4);
    std::vector<double> values(n);
    for (double& value : values) { value = uniform(random); }
    const device_array<T> x(values);
    const device_array<T> y(n);
    const device_array<T> z(n);
    const device_queue queue;
    cuda::launch(double_packs_kernel<T>, 2, 32, 0, queue.stream(), x.data(), std::int64_t{packs}, y.data(), z.data());
    const std::vector<double> held = pulse::test::rounded<T>(values);
    const std::vector<double> doubled = y.download(queue.stream());
    const std::vector<double> same = z.download(queue.stream());
    for (std::size_t i = 0; i < n; ++i) {
        CHECK(doubled[i] == 2 * held[i]);
        CHECK(same[i] == held[i]);
    }
    CHECK(y.intact());
    CHECK(z.intact());
}

TEST_CASE("which addresses packs may be read from") {
    alignas(16) float values[8] = {};
    CHECK(cuda::is_packable<float>(8, values));
    CHECK_FALSE(cuda::is_packable<float>(8, values, values + 1));
    CHECK_FALSE(cuda::is_packable<float>(7, values));
    CHECK(cuda::is_packable<float>(4, values, static_cast<const float*>(nullptr)));
    CHECK_FALSE(cuda::is_packable<__half>(4, values));
}
