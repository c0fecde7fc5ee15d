#pragma once

#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/linear_batch.hpp>

// An operation on an invalid shape throws an input_error that names the operation.

namespace pulse::detail {

[[noreturn]] inline void refuse_shape(const char* operation, const std::string& what) {
    throw input_error{"pulse: " + std::string{operation} + ": " + what};
}

/// "3x28x28 to 32x28x28, kernel 3, padding 1 and 1, stride 1, batch 8"; also for invalid shapes, in the error about
/// them.
[[nodiscard]] inline std::string text_of(const conv2d_shape& s, int batch) {
    const std::string to = s.stride > 0 ? "x" + std::to_string(s.out_height()) + "x" + std::to_string(s.out_width())
                                        : std::string{" channels"};
    return std::to_string(s.in_channels) + "x" + std::to_string(s.in_height) + "x" + std::to_string(s.in_width) +
           " to " + std::to_string(s.out_channels) + to + ", kernel " + std::to_string(s.kernel) + ", padding " +
           std::to_string(s.pad_before) + " and " + std::to_string(s.pad_after) + ", stride " +
           std::to_string(s.stride) + ", batch " + std::to_string(batch);
}

inline void check_convolution(const char* operation, const conv2d_shape& s, int batch) {
    if (batch > 0 && s.in_channels > 0 && s.out_channels > 0 && s.kernel > 0 && s.stride > 0 && s.pad_before >= 0 &&
        s.pad_after >= 0 && s.in_height + s.pad_before + s.pad_after >= s.kernel &&
        s.in_width + s.pad_before + s.pad_after >= s.kernel && s.in_height > 0 && s.in_width > 0) {
        return;
    }
    refuse_shape(operation, "invalid convolution: " + text_of(s, batch));
}
inline void check_pair(const char* operation, const conv2d_shape& s, int second, int batch) {
    check_convolution(operation, s, batch);
    if (second < 0 || second >= s.in_channels) {
        refuse_shape(operation, "second source must have 0 to " + std::to_string(s.in_channels - 1) +
                                    " channels, not " + std::to_string(second));
    }
}
inline void check_linear(const char* operation, const linear_shape& s, std::int64_t rows) {
    if (rows > 0 && s.in_features > 0 && s.out_features > 0) { return; }
    refuse_shape(operation, std::to_string(rows) + " rows, " + std::to_string(s.in_features) + " to " +
                                std::to_string(s.out_features) + " features; each must be at least 1");
}
/// Weights must not overlap, nor results.
inline void check_linear(const char* operation, const linear_batch_shape& s, std::int64_t rows) {
    check_linear(operation, s.each, rows);
    if (s.sound(rows)) { return; }
    refuse_shape(operation, std::to_string(s.count) + " products, weight stride " + std::to_string(s.weight_stride) +
                                ", result stride " + std::to_string(s.result_stride) +
                                "; there must be at least one, and they must not overlap");
}
inline void check_rows(const char* operation, std::int64_t rows, int features) {
    if (rows > 0 && features > 0) { return; }
    refuse_shape(operation,
                 std::to_string(rows) + " rows of " + std::to_string(features) + " features; each must be at least 1");
}
inline void check_group_norm(const char* operation, const group_norm_shape& s, int batch) {
    if (batch > 0 && s.channels > 0 && s.second_channels >= 0 && s.groups > 0 && s.pixels > 0 &&
        s.all_channels() % s.groups == 0) {
        return;
    }
    refuse_shape(operation, std::to_string(s.groups) + " groups of " + std::to_string(s.channels) + " + " +
                                std::to_string(s.second_channels) + " channels, " + std::to_string(s.pixels) +
                                " pixels, batch " + std::to_string(batch) +
                                "; each must be at least 1 (second channels 0), and groups must divide channels");
}
inline void check_adaptive_norm(const char* operation, const adaptive_norm_shape& s, int batch) {
    if (batch > 0 && s.features > 0 && s.tokens > 0 && s.stride >= s.features) { return; }
    refuse_shape(operation, std::to_string(s.tokens) + " tokens of " + std::to_string(s.features) +
                                " features, modulation stride " + std::to_string(s.stride) + ", batch " +
                                std::to_string(batch) +
                                "; each must be at least 1, and the stride at least the features");
}
inline void check_attention(const char* operation, const attention_shape& s, int batch) {
    if (batch > 0 && s.tokens > 0 && s.heads > 0 && s.head_size > 0 && s.context_tokens >= 0) { return; }
    const std::string context = s.context_tokens == 0 ? "" : std::to_string(s.context_tokens) + " context tokens, ";
    refuse_shape(operation, std::to_string(s.tokens) + " tokens, " + context + std::to_string(s.heads) + " heads of " +
                                std::to_string(s.head_size) + ", batch " + std::to_string(batch) +
                                "; each must be at least 1 (context tokens 0)");
}
inline void check_rotary(const char* operation, const rotary_shape& s, int batch) {
    if (batch > 0 && s.rows > 0 && s.columns > 0 && s.heads > 0 && s.head_size > 0 && s.head_size % 4 == 0) { return; }
    refuse_shape(operation, std::to_string(s.heads) + " heads of " + std::to_string(s.head_size) + " on " +
                                std::to_string(s.rows) + " x " + std::to_string(s.columns) + " tokens, batch " +
                                std::to_string(batch) + "; each must be at least 1, and the head size a multiple of 4");
}
inline void check_grids(const char* operation, const resample_shape& s, int batch) {
    if (batch > 0 && s.sound()) { return; }
    refuse_shape(operation, std::to_string(s.from_rows) + " x " + std::to_string(s.from_columns) + " tokens of " +
                                std::to_string(s.features) + " features to " + std::to_string(s.rows) + " x " +
                                std::to_string(s.columns) + " after " + std::to_string(s.leading) +
                                " leading tokens, batch " + std::to_string(batch) +
                                "; each must be at least 1 (leading tokens 0)");
}
inline void check_patches(const char* operation, const patch_shape& s, int batch) {
    if (batch > 0 && s.rows > 0 && s.columns > 0 && s.patch > 0 && s.channels > 0 && s.leading >= 0) { return; }
    refuse_shape(operation, std::to_string(s.rows) + " x " + std::to_string(s.columns) + " patches of " +
                                std::to_string(s.patch) + " x " + std::to_string(s.patch) + " x " +
                                std::to_string(s.channels) + " after " + std::to_string(s.leading) +
                                " leading tokens, batch " + std::to_string(batch) +
                                "; each must be at least 1 (leading tokens 0)");
}

} // namespace pulse::detail
