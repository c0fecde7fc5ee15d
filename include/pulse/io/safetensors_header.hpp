#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/separate.hpp>

namespace pulse::io {

static_assert(std::endian::native == std::endian::little,
              "pulse: safetensors files are read on little-endian machines");

/// A number type of the safetensors format, by the format's own name.
struct element_type {
    std::string_view name;
    int bits;

    [[nodiscard]] bool operator==(const element_type&) const = default;
};

/// Every type that a file may hold.
inline constexpr std::array<element_type, 21> element_types{
    {{"BOOL", 8},        {"U8", 8},      {"I8", 8},      {"I16", 16},    {"U16", 16},    {"F16", 16},
     {"BF16", 16},       {"I32", 32},    {"U32", 32},    {"F32", 32},    {"F64", 64},    {"I64", 64},
     {"U64", 64},        {"C64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
     {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F4", 4}}};

inline constexpr element_type f32{"F32", 32};
inline constexpr element_type f16{"F16", 16};
inline constexpr element_type bf16{"BF16", 16};

/// One tensor of a file: where its bytes lie, counted from the first byte after the header.
struct tensor_entry {
    std::string name{};
    element_type type{};
    std::vector<std::int64_t> dims{};
    std::uint64_t begin{};
    std::uint64_t end{};
};

/// One tensor to be written, its bytes in C order.
struct tensor_source {
    std::string name{};
    element_type type{};
    std::vector<std::int64_t> dims{};
    std::span<const std::byte> bytes{};
};

using tensor_metadata = std::map<std::string, std::string>;

namespace detail {

inline constexpr std::uint64_t safetensors_header_limit = 100'000'000;

/// Bytes of a tensor; throws input_error, beginning with `place`, when they overflow or are not whole.
[[nodiscard]] PULSE_INLINE std::uint64_t tensor_bytes(const std::string& place, element_type type,
                                                      std::span<const std::int64_t> dims);

} // namespace detail

/// A tensor of a file that is to be written.
struct tensor_shape {
    std::string name{};
    element_type type{};
    std::vector<std::int64_t> dims{};
};

/// The layout of a file, known before its values are.
struct safetensors_layout {
    std::string head{};                  ///< the file's first bytes, up to the tensors
    std::vector<std::size_t> order{};    ///< indices of the listed tensors, in the order of their bytes
    std::vector<std::uint64_t> offset{}; ///< file offset of every tensor's first byte, in list order
    std::vector<std::uint64_t> bytes{};  ///< bytes of every tensor, in list order
    std::uint64_t file_bytes{};
};

enum class tensor_order : std::uint8_t {
    by_name,   ///< by decreasing type width, then by name, as the format's own writer does
    as_listed, ///< for tensors of one type width
};

/// The header of a file with these tensors, padded to 8 bytes as by the format's own writer. Equal input gives equal
/// bytes; with `by_name` the order of the list does not matter.
///
/// Throws input_error, beginning with `place`, on a name given twice or sizes that overflow or are not whole bytes.
[[nodiscard]] PULSE_INLINE safetensors_layout lay_out_safetensors(const std::string& place,
                                                                  std::span<const tensor_shape> tensors,
                                                                  const tensor_metadata& metadata = {},
                                                                  tensor_order order = tensor_order::by_name);

} // namespace pulse::io

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/io/safetensors_header.ipp> // IWYU pragma: keep
#endif
