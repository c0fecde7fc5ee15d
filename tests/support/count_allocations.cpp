#include <support/count_allocations.hpp>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
thread_local bool refusing = false;

void* counted(std::size_t bytes, std::size_t alignment) {
    if (counting.load(std::memory_order_relaxed)) { allocations.fetch_add(1, std::memory_order_relaxed); }
    if (refusing) { throw std::bad_alloc{}; }
    void* const p = alignment > alignof(std::max_align_t)
                        ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                        : std::malloc(bytes == 0 ? 1 : bytes);
    if (p == nullptr) { throw std::bad_alloc{}; }
    return p;
}

} // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 0); }
void* operator new[](std::size_t bytes) { return counted(bytes, 0); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    try {
        return counted(bytes, 0);
    } catch (const std::bad_alloc&) { return nullptr; }
}
void* operator new(std::size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<std::size_t>(a)); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

void pulse::test::refuse_allocations(bool on) { refusing = on; }

int pulse::test::count_allocations(bool on) {
    if (on) { allocations = 0; }
    counting = on;
    return allocations;
}
