#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace pulse {

/// Bytes of a cache line, and of the widest vector register.
inline constexpr std::size_t memory_alignment = 64;

struct aligned_free {
    void operator()(std::byte* p) const noexcept { ::operator delete (p, std::align_val_t{memory_alignment}); }
};

/// Owned memory that begins at a multiple of memory_alignment.
using aligned_bytes = std::unique_ptr<std::byte[], aligned_free>;

/// Uninitialised memory; throws std::bad_alloc.
[[nodiscard]] inline aligned_bytes allocate_aligned(std::size_t bytes) {
    return aligned_bytes{
        static_cast<std::byte*>(::operator new (bytes == 0 ? 1 : bytes, std::align_val_t{memory_alignment}))};
}

} // namespace pulse
