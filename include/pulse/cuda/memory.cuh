#pragma once

#include <cstddef>
#include <limits>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/error.cuh>

namespace pulse::cuda {

/// Where memory is: on the calling thread's device, or on the host, page-locked so that copies need no staging.
enum class memory_place : bool { device, pinned_host };

/// Allocates bytes from the runtime, aligned to 256; null for 0 bytes. @throws out_of_memory with the bytes requested
/// and free.
[[nodiscard]] inline std::byte* allocate(memory_place where, std::size_t bytes,
                                         std::source_location at = std::source_location::current()) {
    if (bytes == 0) { return nullptr; }
    void* memory = nullptr;
    const char* call = where == memory_place::device ? "cudaMalloc" : "cudaMallocHost";
    const cudaError_t status =
        where == memory_place::device ? cudaMalloc(&memory, bytes) : cudaMallocHost(&memory, bytes);
    if (status == cudaErrorMemoryAllocation) {
        static_cast<void>(cudaGetLastError());
        std::size_t free = 0;
        std::size_t total = 0;
        check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", at);
        throw out_of_memory(call, bytes, free, total, at);
    }
    check(status, call, at);
    return static_cast<std::byte*>(memory);
}

/// Owns n uninitialised values of T in one place. T must be trivially copyable.
///
/// Allocation and release wait for the device: make buffers before the first step, not during one.
template <class T, memory_place Where>
class owned_memory {
    static_assert(std::is_trivially_copyable_v<T>, "pulse::cuda: values in device memory must be trivially copyable");

public:
    owned_memory() = default;
    explicit owned_memory(std::size_t n, std::source_location at = std::source_location::current()) : size_(n) {
        if (n > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            throw input_error("memory of " + std::to_string(n) + " values: more than can be addressed");
        }
        data_ = reinterpret_cast<T*>(allocate(Where, n * sizeof(T), at));
    }
    owned_memory(owned_memory&& other) noexcept :
        data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    owned_memory& operator=(owned_memory&& other) noexcept {
        owned_memory taken(std::move(other));
        std::swap(data_, taken.data_);
        std::swap(size_, taken.size_);
        return *this;
    }
    ~owned_memory() {
        if (data_ == nullptr) { return; }
        static_cast<void>(Where == memory_place::device ? cudaFree(data_) : cudaFreeHost(data_));
    }

    [[nodiscard]] T* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return size_ * sizeof(T); }

private:
    T* data_{};
    std::size_t size_{};
};

/// Device memory: kernels read and write it, the host does not.
template <class T = std::byte>
using device_memory = owned_memory<T, memory_place::device>;

/// Page-locked host memory: copies to and from it overlap other work.
template <class T = std::byte>
using pinned_memory = owned_memory<T, memory_place::pinned_host>;

/// Copies n values, in stream order; neither buffer may be freed or reused before the copy is done. Host memory should
/// be pinned, otherwise the calling thread waits.
template <class T>
void copy_async(T* to, const T* from, std::size_t n, cudaStream_t on,
                std::source_location at = std::source_location::current()) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (n == 0) { return; }
    check(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyDefault, on), "cudaMemcpyAsync", at);
}

/// Copies `rows` rows of n values each, with strides of `to_step` and `from_step` values; otherwise as copy_async.
template <class T>
void copy_rows_async(T* to, std::int64_t to_step, const T* from, std::int64_t from_step, std::int64_t n, int rows,
                     cudaStream_t on, std::source_location at = std::source_location::current()) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto bytes = [](std::int64_t values) { return static_cast<std::size_t>(values) * sizeof(T); };
    check(cudaMemcpy2DAsync(to, bytes(to_step), from, bytes(from_step), bytes(n), static_cast<std::size_t>(rows),
                            cudaMemcpyDefault, on),
          "cudaMemcpy2DAsync", at);
}

/// Sets every byte of n values to `byte`, in stream order.
template <class T>
void fill_bytes_async(T* to, int byte, std::size_t n, cudaStream_t on,
                      std::source_location at = std::source_location::current()) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (n == 0) { return; }
    check(cudaMemsetAsync(to, byte, n * sizeof(T), on), "cudaMemsetAsync", at);
}

/// Copies n values from host memory to the device; done on return, for every stream. Earlier reads and writes of the
/// target must be done.
///
/// Captures in other threads continue if their streams were made with cudaStreamNonBlocking as pulse's are: only "when
/// a blocking stream is capturing, the legacy stream is in an unusable state" (cudaStreamIsCapturing in
/// cuda_runtime_api.h).
template <class T>
void upload(const T* from, T* to, std::size_t n, std::source_location at = std::source_location::current()) {
    copy_async(to, from, n, nullptr, at);
    // With unpinned host memory the call returns before the values arrive, and pulse's streams are not ordered with the
    // default one.
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", at);
}

/// Copies n values from the device to host memory; done on return. Earlier writes of them must be done.
template <class T>
void download(const T* from, T* to, std::size_t n, std::source_location at = std::source_location::current()) {
    copy_async(to, from, n, nullptr, at);
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", at);
}

/// Alignment in bytes of every buffer of an arena.
inline constexpr std::size_t arena_alignment = 256;

/// One allocation that hands out buffers from front to back, all before the first step, and is freed as a whole.
///
/// Buffers begin at multiples of arena_alignment. The size needed is the sum of their aligned_size.
class arena {
public:
    arena() = default;
    explicit arena(std::size_t bytes, std::source_location at = std::source_location::current()) :
        memory_(aligned_size(bytes), at) {}

    /// The next n values, uninitialised. @throws input_error if the arena has fewer bytes left.
    template <class T>
    [[nodiscard]] T* take(std::size_t n) {
        static_assert(std::is_trivially_copyable_v<T>);
        const std::size_t left = memory_.size() - used_;
        if (n > left / sizeof(T)) {
            throw input_error("arena of " + std::to_string(memory_.size()) + " bytes: " + std::to_string(n) +
                              " values of " + std::to_string(sizeof(T)) + " bytes were asked for, " +
                              std::to_string(left) + " bytes are left");
        }
        T* result = reinterpret_cast<T*>(memory_.data() + used_);
        used_ += aligned_size(n * sizeof(T));
        return result;
    }

    /// Bytes that the arena takes for a buffer of `bytes`.
    [[nodiscard]] static constexpr std::size_t aligned_size(std::size_t bytes) noexcept {
        return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
    }

    [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }
    [[nodiscard]] std::size_t bytes() const noexcept { return memory_.size(); }
    [[nodiscard]] std::size_t used_bytes() const noexcept { return used_; }

private:
    device_memory<std::byte> memory_;
    std::size_t used_{};
};

} // namespace pulse::cuda
