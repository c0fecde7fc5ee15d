// The semantics of a warp's matrix instructions: lanes exchange their registers and addresses.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <emulated/device_code.hpp>

#include <pulse/cuda/kernels/mma.cuh>

namespace pulse::cuda {

namespace {

/// What lane `lane` contributed.
template <class T>
T of_lane(const std::array<std::byte, emulated_cuda::lane_bytes>* lanes, int lane) {
    T value;
    std::memcpy(&value, lanes[lane].data(), sizeof value);
    return value;
}

/// The row of shared memory that a lane points to.
const std::byte* row_of_lane(const std::array<std::byte, emulated_cuda::lane_bytes>* lanes, int lane) {
    const auto* const row = of_lane<const std::byte*>(lanes, lane);
    if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
        emulated_cuda::give_up("a row of a matrix that is not aligned to 16 bytes");
    }
    return row;
}

/// The registers that a lane passes to a product.
struct factors {
    unsigned a[4];
    unsigned b[2];
};

/// sums += a [16][Step] b [Step][8]; a register holds 16 / Step values, and number(bits, i) is the i-th.
template <int Step, class Number>
void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, Number number) {
    constexpr int each = Step / 8;
    const auto* const lanes = emulated_cuda::warp_gather(factors{{a[0], a[1], a[2], a[3]}, {b0, b1}});
    const int own = emulated_cuda::lane();
    // the lane's two rows of a and two columns of b; each is spread over four lanes
    float left[2][Step];
    float right[2][Step];
    for (int piece = 0; piece != 4; ++piece) {
        const auto rows = of_lane<factors>(lanes, own / 4 * 4 + piece);
        const auto first = of_lane<factors>(lanes, own % 4 * 8 + piece);
        const auto second = of_lane<factors>(lanes, own % 4 * 8 + 4 + piece);
        for (int far = 0; far != 2; ++far) { // the second half of the step
            for (int i = 0; i != each; ++i) {
                const int k = far * (Step / 2) + piece * each + i;
                left[0][k] = number(rows.a[far * 2], i);
                left[1][k] = number(rows.a[far * 2 + 1], i);
                right[0][k] = number(first.b[far], i);
                right[1][k] = number(second.b[far], i);
            }
        }
    }
    for (int k = 0; k != Step; ++k) {
        sums[0] += left[0][k] * right[0][k];
        sums[1] += left[0][k] * right[1][k];
        sums[2] += left[1][k] * right[0][k];
        sums[3] += left[1][k] * right[1][k];
    }
}

} // namespace

void load_matrices(unsigned (&to)[4], const void* row) {
    const auto* const lanes = emulated_cuda::warp_gather(row);
    const int own = emulated_cuda::lane();
    for (int m = 0; m != 4; ++m) { std::memcpy(&to[m], row_of_lane(lanes, m * 8 + own / 4) + own % 4 * 4, 4); }
}

void load_matrices_transposed(unsigned (&to)[4], const void* row) {
    const auto* const lanes = emulated_cuda::warp_gather(row);
    const int own = emulated_cuda::lane();
    for (int m = 0; m != 4; ++m) {
        std::uint16_t both[2];
        for (int i = 0; i != 2; ++i) {
            std::memcpy(&both[i], row_of_lane(lanes, m * 8 + own % 4 * 2 + i) + own / 4 * 2, 2);
        }
        to[m] = both[0] | static_cast<unsigned>(both[1]) << 16;
    }
}

void mma_bf16(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    multiply<16>(sums, a, b0, b1,
                 [](unsigned bits, int i) { return std::bit_cast<float>(i == 0 ? bits << 16 : bits & 0xffff0000u); });
}

void mma_fp16(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    multiply<16>(sums, a, b0, b1, [](unsigned bits, int i) {
        __half_raw raw;
        raw.x = static_cast<unsigned short>(bits >> (16 * i));
        return __half2float(__half{raw});
    });
}

// TF32 ignores the last 13 bits of a float
void mma_tf32(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    multiply<8>(sums, a, b0, b1, [](unsigned bits, int) { return std::bit_cast<float>(bits & 0xffffe000u); });
}

} // namespace pulse::cuda
