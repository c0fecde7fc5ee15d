#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/error.cuh>
#include <pulse/cuda/memory.cuh>

namespace pulse::cuda {

/// The id of the capture that a stream is in, or 0. Ids are unique in a process, but every invalidated capture has the
/// greatest value.
[[nodiscard]] inline unsigned long long capture_of(cudaStream_t stream) {
    cudaStreamCaptureStatus status{};
    unsigned long long id = 0;
    check(cudaStreamGetCaptureInfo(stream, &status, &id), "cudaStreamGetCaptureInfo");
    if (status == cudaStreamCaptureStatusInvalidated) { return ~0ULL; } // CUDA gives no id
    return status == cudaStreamCaptureStatusNone ? 0 : id;
}

/// Work needed first-time preparation while its stream was captured: it has to run once uncaptured.
struct not_capturable : input_error {
    using input_error::input_error;
};

/// Throws not_capturable while the stream is captured: `what` allocates or waits, which a graph cannot.
inline void require_not_captured(cudaStream_t stream, const std::string& what) {
    if (capture_of(stream) == 0) { return; }
    throw not_capturable(what + " while the stream is captured: run the program once before capturing it");
}

/// Device memory that the operations of one stream share in turn. It grows when an operation first needs more, which
/// waits for the stream, and never while the stream is captured.
class scratch_arena {
public:
    explicit scratch_arena(cudaStream_t stream) noexcept : stream_{stream} {}

    /// At least `bytes` bytes, aligned to 256; may invalidate earlier results. Throws not_capturable if it would have
    /// to grow while the stream is captured.
    std::byte* reserve(std::size_t bytes) {
        if (bytes > memory_.size()) {
            require_not_captured(stream_,
                                 "the scratch memory of a backend must grow to " + std::to_string(bytes) + " bytes");
            check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
            memory_ = device_memory<std::byte>{};
            memory_ = device_memory<std::byte>{arena::aligned_size(bytes)};
        }
        return memory_.data();
    }
    [[nodiscard]] std::int64_t bytes() const noexcept { return static_cast<std::int64_t>(memory_.bytes()); }

private:
    cudaStream_t stream_;
    device_memory<std::byte> memory_{};
};

/// Splits scratch into consecutive pieces: first counts their sizes, then hands them out once the sum is reserved.
class scratch_pieces {
public:
    scratch_pieces() = default;
    explicit scratch_pieces(std::byte* begin) noexcept : begin_{begin} {}

    /// n values, aligned to 256 bytes; null while only sizes are counted.
    template <class T>
    T* take(std::int64_t n) noexcept {
        std::byte* const piece = begin_ != nullptr ? begin_ + used_ : nullptr;
        used_ += arena::aligned_size(static_cast<std::size_t>(n) * sizeof(T));
        return reinterpret_cast<T*>(piece);
    }
    [[nodiscard]] std::size_t bytes() const noexcept { return used_; }

private:
    std::byte* begin_{};
    std::size_t used_{};
};

/// The pieces that lay(scratch_pieces) takes from an arena; it is called twice, the first time only for their sizes.
template <class Lay>
[[nodiscard]] auto lay_pieces(scratch_arena& arena, const Lay& lay) {
    scratch_pieces sizes;
    lay(sizes);
    scratch_pieces pieces{arena.reserve(sizes.bytes())};
    return lay(pieces);
}

} // namespace pulse::cuda
