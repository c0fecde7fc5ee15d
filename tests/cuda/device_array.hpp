#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include <pulse/cuda/device.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/cuda/stream.cuh>

#include <support/operations/trial.hpp>

namespace pulse::test {

/// An array on the device, poisoned (all bits set: NaN in every scalar type) until something writes it. The pad after
/// it must stay poisoned; intact() checks it.
template <class T>
class device_array {
public:
    /// All values are NaN.
    explicit device_array(std::size_t n) : memory_(n + pad), size_(n) { poison(); }
    /// The values, converted to T.
    template <class Value>
    explicit device_array(const std::vector<Value>& values) : device_array(values.size()) {
        upload(values);
    }

    /// For kernels.
    [[nodiscard]] T* data() const { return memory_.data(); }
    [[nodiscard]] std::size_t size() const { return size_; }

    void poison() {
        cuda::fill_bytes_async(memory_.data(), 0xff, memory_.size(), nullptr);
        cuda::check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    }

    /// Rounds doubles and floats to T.
    template <class Value>
    void upload(const std::vector<Value>& values) {
        std::vector<T> raw(size_);
        for (std::size_t i = 0; i < size_; ++i) {
            if constexpr (cuda::is_scalar_v<T> && std::is_floating_point_v<Value>) {
                raw[i] = cuda::from_float<T>(static_cast<float>(values[i]));
            } else {
                raw[i] = static_cast<T>(values[i]);
            }
        }
        cuda::upload<T>(raw.data(), memory_.data(), size_);
    }

    /// The raw values. Waits for `after` first, and for no other stream.
    [[nodiscard]] std::vector<T> raw(cudaStream_t after = nullptr) const {
        std::vector<T> values(size_);
        cuda::check(cudaStreamSynchronize(after), "cudaStreamSynchronize");
        cuda::download<T>(memory_.data(), values.data(), size_);
        return values;
    }

    /// The values in double. Waits for `after` first, and for no other stream.
    [[nodiscard]] std::vector<double> download(cudaStream_t after = nullptr) const {
        std::vector<double> values;
        for (const T& value : raw(after)) {
            if constexpr (cuda::is_scalar_v<T>) {
                values.push_back(static_cast<double>(cuda::to_float(value)));
            } else {
                values.push_back(static_cast<double>(value));
            }
        }
        return values;
    }

    /// Whether nothing was written past the end. Waits for `after` first.
    [[nodiscard]] bool intact(cudaStream_t after = nullptr) const {
        std::vector<T> behind(pad);
        cuda::check(cudaStreamSynchronize(after), "cudaStreamSynchronize");
        cuda::download<T>(memory_.data() + size_, behind.data(), pad);
        for (const std::byte b : std::as_bytes(std::span<const T>(behind))) {
            if (b != std::byte{0xff}) { return false; }
        }
        return true;
    }

private:
    static constexpr std::size_t pad = 64;
    cuda::device_memory<T> memory_;
    std::size_t size_;
};

template <>
inline constexpr double rounding_error<__nv_bfloat16> = 1.0 / 256;
template <>
inline constexpr double rounding_error<__half> = 1.0 / 2048;
template <>
inline constexpr double least_step<__half> = 1.0 / (1 << 25);

/// A stream of its own with as much scratch as one call needs.
class device_queue {
public:
    explicit device_queue(std::size_t scratch_bytes = 0) : scratch_(scratch_bytes) {
        cuda::fill_bytes_async(scratch_.data(), 0xff, scratch_.size(), stream_.get());
    }

    /// The queue argument of an operation.
    [[nodiscard]] cuda::queue on() const {
        return {stream_.get(), cuda::properties_of(cuda::current_device()).multiprocessors, scratch_.data()};
    }
    [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
    void synchronize() const { stream_.synchronize(); }

private:
    cuda::device_memory<std::byte> scratch_;
    cuda::stream stream_;
};

} // namespace pulse::test
