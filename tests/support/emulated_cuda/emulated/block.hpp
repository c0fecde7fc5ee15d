#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <vector_types.h>

// The built-in variables of device code; set whenever a fiber resumes.
inline constinit thread_local uint3 threadIdx{};
inline constinit thread_local uint3 blockIdx{};
inline constinit thread_local dim3 blockDim{};
inline constinit thread_local dim3 gridDim{};

namespace emulated_cuda {

inline constexpr int warp_size = 32;
/// Most bytes that a lane can contribute to one exchange.
inline constexpr std::size_t lane_bytes = 128;

/// A kernel did something that would hang or is undefined on a device; the text names block, thread and call.
struct kernel_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// What all lanes of a warp must agree on: the call, its shift and its segment width.
struct warp_call {
    enum kind : std::uint8_t { barrier, shuffle, shuffle_xor, shuffle_down, shuffle_up, gather };
    kind what{};
    int amount{};
    int width{};

    [[nodiscard]] constexpr bool operator==(const warp_call&) const = default;
};

/// What the lanes of a warp contributed; valid until the lane's next call but one.
struct warp_values {
    const std::array<std::byte, lane_bytes>* lanes;
    int count;

    /// A lane's value; all bits are set for a lane that the block does not have.
    template <class T>
    [[nodiscard]] T at(int lane) const {
        T result;
        if (lane < 0 || lane >= count) {
            std::memset(&result, 0xff, sizeof result);
        } else {
            std::memcpy(&result, lanes[lane].data(), sizeof result);
        }
        return result;
    }
};

/// Waits until every thread of the block arrives.
void block_barrier();

/// Contributes this lane's bytes and waits until every lane of the warp did; all must make the same call.
[[nodiscard]] warp_values warp_exchange(const warp_call& call, const void* bytes, std::size_t size);

/// Every lane's value of T, in lane order: one exchange instead of many shuffles. Read it before the next exchange.
template <class T>
[[nodiscard]] const std::array<std::byte, lane_bytes>* warp_gather(const T& mine) {
    static_assert(sizeof(T) <= lane_bytes && std::is_trivially_copyable_v<T>);
    return warp_exchange({warp_call::gather, static_cast<int>(sizeof(T)), warp_size}, &mine, sizeof mine).lanes;
}

/// Index of this thread within its warp.
[[nodiscard]] int lane();

/// Fails the kernel on a partial mask: pulse uses none.
void require_full(unsigned mask, const char* call);

/// Ends the kernel with kernel_error: the running thread did something that is undefined on a device.
[[noreturn]] void give_up(const std::string& why);

/// Dynamic shared memory of the running block.
[[nodiscard]] void* dynamic_shared();

/// Runs `body` once for each thread of each block. Dynamic shared memory is NaN when a block begins. The order of
/// blocks varies by launch, that of warps and lanes by launch and block, so that code that relies on an order fails.
/// @throws kernel_error
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& body);

} // namespace emulated_cuda
