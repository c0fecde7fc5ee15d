#pragma once

/// The semantics of asynchronous copies: they happen only when the thread that began them waits for them, so that an
/// earlier read of shared memory finds the old contents. For one-dimensional blocks.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <emulated/device_code.hpp>

namespace pulse::cuda {

namespace emulated_copies {

struct copy {
    void* shared;
    const void* global;
    std::size_t bytes;
    bool present;
};

/// The copies begun by the running thread of the block.
inline std::vector<copy>& begun() {
    static thread_local std::vector<copy> of_thread[1024];
    return of_thread[threadIdx.x];
}

/// Begins a copy; both addresses must be aligned to its size.
inline void begin(void* shared, const void* global, std::size_t bytes, bool present) {
    for (const void* place : {static_cast<const void*>(shared), global}) {
        if (reinterpret_cast<std::uintptr_t>(place) % bytes != 0) {
            emulated_cuda::give_up("an asynchronous copy of " + std::to_string(bytes) + " bytes that are not aligned");
        }
    }
    begun().push_back({shared, global, bytes, present});
}

} // namespace emulated_copies

inline void begin_copy(void* shared, const void* global, bool present) {
    emulated_copies::begin(shared, global, 16, present);
}

inline void begin_copy_word(void* shared, const void* global, bool present) {
    emulated_copies::begin(shared, global, 4, present);
}

inline void wait_for_copies() {
    for (const emulated_copies::copy& c : emulated_copies::begun()) {
        if (c.present) {
            std::memcpy(c.shared, c.global, c.bytes);
        } else {
            std::memset(c.shared, 0, c.bytes);
        }
    }
    emulated_copies::begun().clear();
}

} // namespace pulse::cuda
