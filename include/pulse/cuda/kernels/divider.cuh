#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace pulse::cuda {

/// Division of integers in [0, 2^31) by a divisor in [1, 2^31) that is known when a kernel is launched: a product and a
/// shift (Granlund and Montgomery 1994, section 4, with one bit less for the dividend so that the factor has 32 bits).
struct divider {
    std::uint32_t divisor{1};
    std::uint32_t factor{0x80000000u};
    std::uint32_t shift{31};

    divider() = default;
    explicit constexpr divider(std::int64_t by) : divisor{static_cast<std::uint32_t>(by)} {
        std::uint32_t bits = 0;
        while ((std::uint64_t{1} << bits) < divisor) { ++bits; }
        shift = 31 + bits;
        factor = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + divisor - 1) / divisor);
    }

    [[nodiscard]] constexpr __host__ __device__ std::uint32_t quotient(std::uint32_t n) const {
        return static_cast<std::uint32_t>((std::uint64_t{n} * factor) >> shift);
    }
};

/// A quotient and its remainder.
struct divided {
    std::uint32_t quotient;
    std::uint32_t remainder;
};

[[nodiscard]] constexpr __host__ __device__ divided divide(std::uint32_t n, const divider& by) {
    const std::uint32_t q = by.quotient(n);
    return {q, n - q * by.divisor};
}

} // namespace pulse::cuda
