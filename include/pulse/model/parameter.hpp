#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <pulse/core/label.hpp>

namespace pulse {

/// A trainable tensor: its full name in a checkpoint and its shape, in the checkpoint's order (weights
/// [out][in][ky][kx]). Name and rank determine its initial value (nn::initialise).
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
    /// Rows of the matrix [first extent][product of the rest] as which Adafactor treats a tensor of two or more
    /// dimensions; 0 for a vector or an empty tensor.
    [[nodiscard]] constexpr std::int64_t matrix_rows() const noexcept {
        return rank < 2 || elements() == 0 ? 0 : dims[0];
    }
    [[nodiscard]] constexpr bool operator==(const parameter&) const = default;
};

/// Floats of the second moments of a tensor when Adafactor factors them: one mean per row and one per column or, for a
/// vector (0 rows), one moment per element.
template <class Size>
[[nodiscard]] constexpr Size factored_elements(Size elements, Size matrix_rows) noexcept {
    return matrix_rows == 0 ? elements : matrix_rows + elements / matrix_rows;
}

/// Totals of a list of parameters.
struct parameter_counts {
    std::size_t tensors{};
    std::int64_t elements{};
    std::int64_t factored{}; ///< floats of the factored second moments

    [[nodiscard]] constexpr bool operator==(const parameter_counts&) const = default;
};

/// A parameter list whose totals the compiler knows without building the list. Building takes long because of the
/// names, so it happens only where the list itself is read.
template <parameter_counts Counts>
struct counted_parameters : std::array<parameter, Counts.tensors> {
    static constexpr parameter_counts counts = Counts;
};

/// What can be wrong with a list of parameters.
enum class parameter_flaw : std::uint8_t {
    none,
    dims, ///< rule: the first `rank` dims are positive (non-negative if `zero`), the others 0 or 1
    start ///< rule: a parameter of rank 0 or 1 is a .weight, the .bias right behind one, or `zero`
};

/// The first flaw in a list, and the index of its parameter.
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
