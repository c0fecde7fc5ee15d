#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include <sys/mman.h>

#include <emulated/machine.hpp>
#include <emulated/runtime.hpp>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace emulated_cuda {

const allocation* allocation_of(const void* address, std::size_t bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    auto found = the().memory.upper_bound(at);
    if (found == the().memory.begin()) { return nullptr; }
    --found;
    if (at >= found->first + found->second.bytes) { return nullptr; }
    if (at + bytes > found->first + found->second.bytes) { refuse(cudaErrorInvalidValue); }
    return &found->second;
}

namespace {

bool is_device(const void* address, std::size_t bytes) {
    const allocation* found = allocation_of(address, bytes);
    return found != nullptr && found->device;
}

void* allocate(std::size_t bytes, bool device) {
    require_no_capture();
    if (bytes == 0) { return nullptr; }
    if (device && bytes > the().counted.memory_bytes - the().device_bytes) { refuse(cudaErrorMemoryAllocation); }
    const bool counts = static_cast<bool>(the().counted.note);
    const bool untouched = device && counts;
    void* memory = nullptr;
    if (untouched) {
        memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) { refuse(cudaErrorMemoryAllocation); }
    } else {
        if (posix_memalign(&memory, 256, bytes) != 0) { refuse(cudaErrorMemoryAllocation); }
        std::memset(memory, counts ? 0 : 0xff, bytes);
    }
    the().memory[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, device, untouched};
    (device ? the().device_bytes : the().pinned_bytes) += bytes;
#if defined(__SANITIZE_ADDRESS__)
    if (device && !untouched && the().depth == 0) { ASAN_POISON_MEMORY_REGION(memory, bytes); }
#endif
    return memory;
}

void release(void* memory, bool device) {
    if (memory == nullptr) { return; }
    require_no_capture();
    const auto found = the().memory.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == the().memory.end() || found->second.device != device) { refuse(cudaErrorInvalidValue); }
    drain();
    deferring(run_all);
#if defined(__SANITIZE_ADDRESS__)
    if (!found->second.untouched) { ASAN_UNPOISON_MEMORY_REGION(memory, found->second.bytes); }
#endif
    (device ? the().device_bytes : the().pinned_bytes) -= found->second.bytes;
    const allocation gone = found->second;
    the().memory.erase(found);
    if (gone.untouched) {
        munmap(memory, gone.bytes);
    } else {
        std::free(memory);
    }
}

void check_kind(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const bool to_device = is_device(to, bytes);
    const bool from_device = is_device(from, bytes);
    const bool matches = kind == cudaMemcpyDefault || (kind == cudaMemcpyHostToDevice && to_device && !from_device) ||
                         (kind == cudaMemcpyDeviceToHost && !to_device && from_device) ||
                         (kind == cudaMemcpyDeviceToDevice && to_device && from_device) ||
                         (kind == cudaMemcpyHostToHost && !to_device && !from_device);
    if (!matches) { refuse(cudaErrorInvalidMemcpyDirection); }
}

/// Copies rows of `bytes`, with pitches.
void copy(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t bytes, std::size_t rows,
          cudaMemcpyKind kind, cudaStream_t on) {
    CUstream_st& stream = stream_of(on);
    if (bytes == 0 || rows == 0) { return; }
    if (bytes > to_pitch || bytes > from_pitch) { refuse(cudaErrorInvalidPitchValue); }
    check_kind(to, to, (rows - 1) * to_pitch + bytes, cudaMemcpyDefault);
    check_kind(from, from, (rows - 1) * from_pitch + bytes, cudaMemcpyDefault);
    check_kind(to, from, bytes, kind);
    const auto moves = [=] {
        for (std::size_t row = 0; row < rows; ++row) {
            std::memmove(static_cast<std::byte*>(to) + row * to_pitch,
                         static_cast<const std::byte*>(from) + row * from_pitch, bytes);
        }
    };
    const bool captured = stream.capturing != nullptr;
    const auto moved = static_cast<std::int64_t>(bytes * rows);
    const work what{.call = "copy", .bytes = moved * (is_device(to, bytes) + is_device(from, bytes))};
    if (!captured && !the().counted.note &&
        allocation_of(from, bytes) == nullptr) { // pageable: read before the call returns
        std::vector<std::byte> staged(bytes * rows);
        for (std::size_t row = 0; row < rows; ++row) {
            std::memcpy(staged.data() + row * bytes, static_cast<const std::byte*>(from) + row * from_pitch, bytes);
        }
        enqueue(stream, [=, data = std::move(staged)] {
            for (std::size_t row = 0; row < rows; ++row) {
                std::memcpy(static_cast<std::byte*>(to) + row * to_pitch, data.data() + row * bytes, bytes);
            }
        });
    } else {
        enqueue(stream, what, moves);
    }
    if (!captured && allocation_of(to, bytes) == nullptr) { await(stream, stream.issued); }
}

void set(void* to, int value, std::size_t bytes, cudaStream_t on) {
    CUstream_st& stream = stream_of(on);
    if (bytes == 0) { return; }
    if (allocation_of(to, bytes) == nullptr) { refuse(cudaErrorInvalidValue); }
    enqueue(stream, {.call = "fill", .bytes = static_cast<std::int64_t>(bytes)},
            [=] { std::memset(to, value, bytes); });
}

} // namespace

bool is_device(const void* address) {
    const std::scoped_lock lock(the().guard);
    return is_device(address, 1);
}

std::int64_t allocated_bytes(const void* address) {
    const std::scoped_lock lock(the().guard);
    const auto found = the().memory.find(reinterpret_cast<std::uintptr_t>(address));
    return found == the().memory.end() ? 0 : static_cast<std::int64_t>(found->second.bytes);
}

} // namespace emulated_cuda

using namespace emulated_cuda;

extern "C" {

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    return api([&] { *memory = allocate(bytes, true); });
}
cudaError_t cudaFree(void* memory) {
    return api([&] { release(memory, true); });
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
    return api([&] { *memory = allocate(bytes, false); });
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
    return api([&] { *memory = allocate(bytes, false); });
}
cudaError_t cudaFreeHost(void* memory) {
    return api([&] { release(memory, false); });
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    return api([&] {
        *total = the().counted.memory_bytes;
        *free = *total - the().device_bytes;
    });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
    return api([&] {
        const allocation* found = allocation_of(address, 1);
        *attributes = {};
        attributes->type = found == nullptr ? cudaMemoryTypeUnregistered
                           : found->device  ? cudaMemoryTypeDevice
                                            : cudaMemoryTypeHost;
        auto* plain = const_cast<void*>(address);
        attributes->devicePointer = found == nullptr ? nullptr : plain;
        attributes->hostPointer = found == nullptr || found->device ? nullptr : plain;
    });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return api([&] { copy(to, bytes, from, bytes, bytes, 1, kind, stream); });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return api([&] {
        require_no_capture();
        copy(to, bytes, from, bytes, bytes, 1, kind, nullptr);
        // From pageable memory the call returns once the bytes are staged; from device to device at once. They have not
        // arrived then for a stream that is not ordered with the default stream.
        const bool staged = allocation_of(from, bytes) == nullptr && is_device(to, bytes);
        const bool on_device = is_device(from, bytes) && is_device(to, bytes);
        if (!staged && !on_device) { await(the().default_stream, the().default_stream.issued); }
    });
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t bytes, std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
    return api([&] { copy(to, to_pitch, from, from_pitch, bytes, rows, kind, stream); });
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream) {
    return api([&] {
        require_device(to_device);
        require_device(from_device);
        copy(to, bytes, from, bytes, bytes, 1, cudaMemcpyDeviceToDevice, stream);
    });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    return api([&] { set(to, value, bytes, stream); });
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
    return api([&] {
        require_no_capture();
        set(to, value, bytes, nullptr); // it is device memory: the call does not wait
        if (!is_device(to, bytes)) { await(the().default_stream, the().default_stream.issued); }
    });
}

} // extern "C"
