#pragma once

/// The meaning of asynchronous copies: they happen when the thread that began them waits for them, as late as they may,
/// so that what reads shared memory before that finds what was there. For blocks of one dimension.

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

/// Those of the thread of the block that runs.
inline std::vector<copy>& begun() {
    static thread_local std::vector<copy> of_thread[1024];
    return of_thread[threadIdx.x];
}

/// Begins a copy between aligned places.
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
