#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/checkpoint/checkpoint.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/model/parameter.hpp>

namespace pulse::train {

/// What training keeps of a parameter; of a matrix whose second moments are factored, the means of its rows and columns
/// instead of moments.
enum class tensor_part : std::uint8_t { weight, first_moment, second_moment, average, row_means, column_means };

/// A flat range of a tensor's elements in this rank's memory: `values` are the elements `first` and those that follow.
///
/// A rank lists what it holds of the state, whole tensors or parts, in any order; several ranks may hold the same.
template <class T>
struct tensor_range {
    parameter what{};
    tensor_part part{};
    std::int64_t first{};
    std::span<T> values{};
    std::string_view prefix{}; ///< stands before the parameter's name, of one backbone of several

    /// The tensor's name in the file.
    [[nodiscard]] std::string key() const {
        return detail::tensor_prefixes[static_cast<std::size_t>(part)] + std::string{prefix} + what.name.str();
    }
};

/// A tensor_range without its values, as other ranks know it.
struct held_range {
    std::string key{};
    std::vector<std::int64_t> dims{};
    std::int64_t first{};
    std::int64_t elements{};
};

/// What a rank writes: elements of the tensor, from the range at that place of its list.
struct range_share {
    std::size_t range{};
    std::int64_t first{};
    std::int64_t elements{};

    [[nodiscard]] bool operator==(const range_share&) const = default;
};

/// Who writes what: every element of every tensor exactly once, by a rank that holds it. `held[rank]` is what ranks
/// hold; the shares of a rank are in the order of its list.
///
/// What several ranks hold goes to the one with the least to write so far, the largest ranges first. Throws input_error
/// naming the tensor that has two shapes, that a rank holds beyond its end, or of which no rank holds a part.
[[nodiscard]] PULSE_INLINE std::vector<std::vector<range_share>> deal_ranges(
    std::span<const std::vector<held_range>> held);

} // namespace pulse::train

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/checkpoint/shares.ipp> // IWYU pragma: keep
#endif
