#pragma once

#include <cstdint>

#include <pulse/core/separate.hpp>
#include <pulse/onednn/buffer.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::onednn {

/// The operations of forward-only picture networks: a part of onednn::backend.
class picture_operations {
public:
    explicit picture_operations(int threads) : threads_{threads} {}

    void group_norm_statistics(const group_norm_shape& s, int batch, const float* x, float* statistics);
    void group_norm_rows(const group_norm_shape& s, int rows, int width, const float* x, const float* gamma,
                         const float* beta, const float* statistics, float* y, std::int64_t y_stride);
    void posterior(std::int64_t pixels, int channels, float factor, const float* moments, const float* noise, float* z);

protected:
    [[nodiscard]] std::int64_t picture_scratch_bytes() const noexcept { return sums_.bytes() + constants_.bytes(); }

private:
    static void check_norm(const char* operation, const group_norm_shape& s, int rows, int pixels);

    int threads_;
    basic_buffer<double> sums_{};
    buffer constants_{};
};

} // namespace pulse::onednn

#ifndef PULSE_SEPARATE_HOST
#include <pulse/onednn/picture_operations.ipp> // IWYU pragma: keep
#endif
