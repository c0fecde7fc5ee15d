#pragma once

/// The semantics of bulk copies: they happen as late as they may. Beginning a load poisons its destination, and a store
/// reads its source only when the thread waits for it, so that a slot that is used too early shows. One thread of a
/// block issues all copies.

#include <cstdint>
#include <cstring>
#include <vector>

#include <emulated/device_code.hpp>

namespace pulse::cuda {

[[nodiscard]] constexpr bool has_bulk_copies() { return true; }

/// The number of completed phases.
using bulk_barrier = std::uint64_t;

namespace emulated_copies {

struct bulk_copy {
    void* to;
    const void* from;
    unsigned bytes;
    bulk_barrier* barrier; ///< of a load; null for a store
};

struct bulk_copies {
    std::vector<bulk_copy> loads;
    std::vector<bulk_copy> stores;
};

/// The copies of the running block.
inline bulk_copies& in_bulk() {
    static thread_local bulk_copies under_way;
    return under_way;
}

inline void require_bulk(const void* a, const void* b, unsigned bytes) {
    if (reinterpret_cast<std::uintptr_t>(a) % 16 != 0 || reinterpret_cast<std::uintptr_t>(b) % 16 != 0 ||
        bytes % 16 != 0 || bytes == 0) {
        emulated_cuda::give_up("a bulk copy of what is not aligned to 16 bytes");
    }
}

inline void store_all_but(std::size_t later) {
    auto& stores = in_bulk().stores;
    while (stores.size() > later) {
        std::memcpy(stores.front().to, stores.front().from, stores.front().bytes);
        stores.erase(stores.begin());
    }
}

} // namespace emulated_copies

inline void begin_phases(bulk_barrier* barrier) {
    if (!emulated_copies::in_bulk().loads.empty() || !emulated_copies::in_bulk().stores.empty()) {
        emulated_copies::in_bulk() = {};
        emulated_cuda::give_up("bulk copies of the block before that nothing waited for");
    }
    *barrier = 0;
}

inline void begin_bulk_load(void* shared, const void* global, unsigned bytes, bulk_barrier* barrier) {
    emulated_copies::require_bulk(shared, global, bytes);
    for (const auto& load : emulated_copies::in_bulk().loads) {
        if (load.barrier == barrier) { emulated_cuda::give_up("two bulk loads in one phase of a barrier"); }
    }
    std::memset(shared, 0xff, bytes);
    emulated_copies::in_bulk().loads.push_back({shared, global, bytes, barrier});
}

inline void wait_for_load(bulk_barrier* barrier, unsigned phase) {
    if ((*barrier & 1U) != (phase & 1U)) { return; } // the previous phase: complete
    auto& loads = emulated_copies::in_bulk().loads;
    for (std::size_t i = 0; i != loads.size(); ++i) {
        if (loads[i].barrier != barrier) { continue; }
        std::memcpy(loads[i].to, loads[i].from, loads[i].bytes);
        loads.erase(loads.begin() + static_cast<std::ptrdiff_t>(i));
        ++*barrier;
        return;
    }
    emulated_cuda::give_up("a wait for a bulk load that was not begun");
}

inline void begin_bulk_store(void* global, const void* shared, unsigned bytes) {
    emulated_copies::require_bulk(global, shared, bytes);
    emulated_copies::in_bulk().stores.push_back({global, shared, bytes, nullptr});
}

template <int Later>
void wait_until_read() {
    emulated_copies::store_all_but(Later);
}

inline void wait_for_stores() { emulated_copies::store_all_but(0); }

} // namespace pulse::cuda
