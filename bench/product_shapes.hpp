#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include <pulse/core/pass.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse_bench {

/// A matrix product as cuBLASLt is asked for it: column-major matrices, d has rows x columns.
struct product_shape {
    std::int64_t rows{}, columns{}, depth{};
    bool transpose_a{}, transpose_b{};
    bool float_result{}; ///< else in bfloat16, as a and b are
    bool adds{};
    bool with_bias{}; ///< or the gradient of one, where cuBLASLt can compute it
    int batch{1};

    [[nodiscard]] auto operator<=>(const product_shape&) const = default;
    [[nodiscard]] double flops() const {
        return 2.0 * batch * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(depth);
    }
};

/// The product of a linear layer's pass over `rows` rows.
[[nodiscard]] inline product_shape shape_of(pulse::pass which, const pulse::linear_shape& s, std::int64_t rows,
                                            bool adds, bool with_bias = false, int batch = 1) {
    const std::int64_t in = s.in_features;
    const std::int64_t out = s.out_features;
    if (which == pulse::pass::forward) { return {out, rows, in, true, false, false, adds, with_bias, batch}; }
    if (which == pulse::pass::backward_input) { return {in, rows, out, false, false, false, adds, with_bias, batch}; }
    return {in, out, rows, false, true, true, adds, with_bias, batch};
}

/// The products of a convolution's pass, one for each input; none if the convolution is no product.
[[nodiscard]] inline std::vector<product_shape> shapes_of(pulse::pass which, const pulse::conv2d_shape& s, int second,
                                                          int batch, bool adds, bool with_bias = false) {
    if (s.kernel != 1 || s.stride != 1) { return {}; }
    const std::int64_t rows = std::int64_t{batch} * s.in_height * s.in_width;
    std::vector<product_shape> all{shape_of(which, {s.in_channels - second, s.out_channels}, rows, adds, with_bias)};
    if (second != 0) {
        all.push_back(shape_of(which, {second, s.out_channels}, rows, adds || which == pulse::pass::forward));
    }
    return all;
}

} // namespace pulse_bench
