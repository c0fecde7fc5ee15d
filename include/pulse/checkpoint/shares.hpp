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

/// What training keeps of a parameter. A matrix with factored second moments has means of its rows and columns instead
/// of moments.
enum class tensor_part : std::uint8_t { weight, first_moment, second_moment, average, row_means, column_means };

/// A flat range of a tensor's elements in this rank's memory: `values` start at element `first`.
///
/// A rank lists the ranges that it holds of the state, whole tensors or parts, in any order; ranks may hold the same
/// ones.
template <class T>
struct tensor_range {
    parameter what{};
    tensor_part part{};
    std::int64_t first{};
    std::span<T> values{};
    std::string_view prefix{}; ///< of one backbone among several; precedes the parameter's name

    /// The tensor's name in the file.
    [[nodiscard]] std::string key() const {
        return detail::tensor_prefixes[static_cast<std::size_t>(part)] + std::string{prefix} + what.name.str();
    }
};

/// A tensor_range without values, as other ranks know it.
struct held_range {
    std::string key{};
    std::vector<std::int64_t> dims{};
    std::int64_t first{};
    std::int64_t elements{};
};

/// Elements of a tensor that a rank writes, from the range at that index of its list.
struct range_share {
    std::size_t range{};
    std::int64_t first{};
    std::int64_t elements{};

    [[nodiscard]] bool operator==(const range_share&) const = default;
};

/// Assigns every element of every tensor to exactly one rank that holds it, which writes it. `held[rank]` lists what a
/// rank holds; its shares are in the order of that list.
///
/// A segment that several ranks hold goes to the rank with the least to write so far, the largest segments first.
/// Throws input_error naming the tensor that has two shapes, that a rank holds beyond its end, or of which no rank
/// holds a part.
[[nodiscard]] PULSE_INLINE std::vector<std::vector<range_share>> deal_ranges(
    std::span<const std::vector<held_range>> held);

} // namespace pulse::train

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/checkpoint/shares.ipp> // IWYU pragma: keep
#endif
