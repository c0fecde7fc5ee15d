#pragma once

#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/linear_batch.hpp>

// What asks a backend for an operation on shapes that make no sense gets an input_error that names the operation.

namespace pulse::cuda::detail {

inline void require(bool holds, const char* operation, const std::string& what) {
    if (!holds) { throw input_error{"pulse: " + std::string{operation} + ": " + what}; }
}
inline void check_convolution(const char* operation, const conv2d_shape& s, int batch) {
    const bool sound = batch > 0 && s.in_channels > 0 && s.out_channels > 0 && s.kernel > 0 && s.stride > 0 &&
                       s.pad_before >= 0 && s.pad_after >= 0 && s.in_height > 0 && s.in_width > 0 &&
                       s.in_height + s.pad_before + s.pad_after >= s.kernel &&
                       s.in_width + s.pad_before + s.pad_after >= s.kernel;
    if (sound) { return; }
    require(false, operation,
            "no such convolution: batch " + std::to_string(batch) + ", " + std::to_string(s.in_channels) + " to " +
                std::to_string(s.out_channels) + " channels of " + std::to_string(s.in_height) + "x" +
                std::to_string(s.in_width) + ", kernel " + std::to_string(s.kernel) + ", stride " +
                std::to_string(s.stride) + ", padding " + std::to_string(s.pad_before) + " and " +
                std::to_string(s.pad_after));
}
inline void check_pair(const char* operation, const conv2d_shape& s, int second, int batch) {
    check_convolution(operation, s, batch);
    require(second >= 0 && second < s.in_channels, operation,
            "second source has " + std::to_string(second) + " of " + std::to_string(s.in_channels) + " channels");
}
inline void check_linear(const char* operation, const linear_shape& s, std::int64_t rows) {
    require(rows > 0 && s.in_features > 0 && s.out_features > 0, operation,
            std::to_string(rows) + " rows, " + std::to_string(s.in_features) + " to " + std::to_string(s.out_features) +
                " features");
}
/// Neither weights nor results overlap.
inline void check_linear(const char* operation, const linear_batch_shape& s, std::int64_t rows) {
    check_linear(operation, s.each, rows);
    require(s.sound(rows), operation,
            std::to_string(s.count) + " products at distances of " + std::to_string(s.weight_stride) + " and " +
                std::to_string(s.result_stride));
}

} // namespace pulse::cuda::detail
