#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <pulse/core/label.hpp>

namespace pulse {

/// A trainable tensor: its full name in a checkpoint and its shape, in the checkpoint's order (weights
/// [out][in][ky][kx]). Its name and rank say what it starts as (nn::initialise).
struct parameter {
    label name{};
    std::array<int, 4> dims{};
    int rank{};
    bool zero{}; ///< starts at 0 when it is not read from a checkpoint

    [[nodiscard]] constexpr std::int64_t elements() const noexcept {
        std::int64_t n = 1;
        for (int d = 0; d != rank; ++d) { n *= dims[static_cast<std::size_t>(d)]; }
        return n;
    }
    /// Of the matrix [first extent][product of the rest] that a tensor of two or more dimensions is to Adafactor; 0 of
    /// a vector and where there is no element.
    [[nodiscard]] constexpr std::int64_t matrix_rows() const noexcept {
        return rank < 2 || elements() == 0 ? 0 : dims[0];
    }
    [[nodiscard]] constexpr bool operator==(const parameter&) const = default;
};

/// Floats of the second moments of a tensor of so many elements where Adafactor factors them: a mean of every row and
/// of every column, and of a vector, which has 0 rows, one of each element.
template <class Size>
[[nodiscard]] constexpr Size factored_elements(Size elements, Size matrix_rows) noexcept {
    return matrix_rows == 0 ? elements : matrix_rows + elements / matrix_rows;
}

/// What a list of parameters adds up to.
struct parameter_counts {
    std::size_t tensors{};
    std::int64_t elements{};
    std::int64_t factored{}; ///< floats of the factored second moments

    [[nodiscard]] constexpr bool operator==(const parameter_counts&) const = default;
};

/// A list of which the compiler knows the sums before it makes it, which takes long, for all the names. So it is made
/// where somebody reads it alone.
template <parameter_counts Counts>
struct counted_parameters : std::array<parameter, Counts.tensors> {
    static constexpr parameter_counts counts = Counts;
};

/// What a list of parameters may have wrong.
enum class parameter_flaw : std::uint8_t {
    none,
    dims, ///< `rank` of them are positive, or of one that is zero not negative, and those behind are 0 or 1
    start ///< one of rank 0 or 1 is a .weight, the .bias right behind one, or zero
};

/// The first of them in a list, and whose it is.
struct parameter_finding {
    parameter_flaw flaw{};
    std::size_t which{};
};
[[nodiscard]] constexpr parameter_finding inspect(std::span<const parameter> all) noexcept {
    for (std::size_t i = 0; i != all.size(); ++i) {
        const parameter& p = all[i];
        for (std::size_t d = 0; d != p.dims.size(); ++d) {
            const bool inside = static_cast<int>(d) < p.rank;
            if (inside ? p.dims[d] < (p.zero ? 0 : 1) : p.dims[d] < 0 || p.dims[d] > 1) {
                return {parameter_flaw::dims, i};
            }
        }
        const std::string_view name = p.name.view();
        const bool is_bias = name.ends_with(".bias");
        const bool behind_weight = i != 0 && all[i - 1].name.view().ends_with(".weight");
        if (!p.zero && !name.ends_with(".weight") && (is_bias ? !behind_weight : p.rank < 2)) {
            return {parameter_flaw::start, i};
        }
    }
    return {};
}

} // namespace pulse
