#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>

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

/// Bytes of a tensor; throws input_error, beginning with `place`, when they cannot be counted.
[[nodiscard]] inline std::uint64_t tensor_bytes(const std::string& place, element_type type,
                                                std::span<const std::int64_t> dims) {
    std::uint64_t bits = static_cast<std::uint64_t>(type.bits);
    for (const std::int64_t extent : dims) {
        if (extent < 0) { throw input_error(place + ": a negative extent in its shape"); }
        const auto factor = static_cast<std::uint64_t>(extent);
        if (factor != 0 && bits > std::numeric_limits<std::uint64_t>::max() / factor) {
            throw input_error(place + ": its shape has too many elements");
        }
        bits *= factor;
    }
    if (bits % 8 != 0) { throw input_error(place + ": its elements do not fill whole bytes"); }
    return bits / 8;
}

} // namespace detail

/// A tensor of a file that is to be written.
struct tensor_shape {
    std::string name{};
    element_type type{};
    std::vector<std::int64_t> dims{};
};

/// Where everything of a file lies, known before the first value is.
struct safetensors_layout {
    std::string head{};                  ///< the file's first bytes, up to the tensors
    std::vector<std::size_t> order{};    ///< tensors, by their place in the list, in the order of their bytes
    std::vector<std::uint64_t> offset{}; ///< of every tensor's first byte in the file, in the list's order
    std::vector<std::uint64_t> bytes{};  ///< of every tensor, in the list's order
    std::uint64_t file_bytes{};
};

/// The header of a file with these tensors; equal input gives equal bytes, whatever the order of `tensors`.
///
/// As the format's own writer does, tensors lie in order of falling type width, then of name, and the header is padded
/// to 8 bytes. Throws input_error, beginning with `place`, on a name given twice or sizes that cannot be counted.
[[nodiscard]] inline safetensors_layout lay_out_safetensors(const std::string& place,
                                                            std::span<const tensor_shape> tensors,
                                                            const tensor_metadata& metadata = {}) {
    safetensors_layout layout{.offset = std::vector<std::uint64_t>(tensors.size(), 0),
                              .bytes = std::vector<std::uint64_t>(tensors.size(), 0)};
    for (std::size_t i = 0; i != tensors.size(); ++i) { layout.order.push_back(i); }
    std::sort(layout.order.begin(), layout.order.end(), [&](std::size_t i, std::size_t j) {
        const tensor_shape& a = tensors[i];
        const tensor_shape& b = tensors[j];
        return a.type.bits != b.type.bits ? a.type.bits > b.type.bits : a.name < b.name;
    });

    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) {
        auto& object = header["__metadata__"] = nlohmann::ordered_json::object();
        for (const auto& [key, value] : metadata) { object[key] = value; }
    }
    std::set<std::string_view> names{"__metadata__"};
    std::uint64_t offset = 0;
    for (const std::size_t i : layout.order) {
        const tensor_shape& tensor = tensors[i];
        const std::string where = place + ": tensor '" + tensor.name + "'";
        if (!names.insert(tensor.name).second) { throw input_error(where + ": its name is taken"); }
        layout.bytes[i] = detail::tensor_bytes(where, tensor.type, tensor.dims);
        layout.offset[i] = offset;
        nlohmann::ordered_json entry;
        entry["dtype"] = tensor.type.name;
        entry["shape"] = tensor.dims;
        entry["data_offsets"] = {offset, offset + layout.bytes[i]};
        header.push_back({tensor.name, std::move(entry)});
        offset += layout.bytes[i];
    }
    std::string text;
    try {
        text = header.dump();
    } catch (const nlohmann::json::exception& fault) {
        throw input_error(place + ": a name or metadata is not UTF-8: " + fault.what());
    }
    text.resize((text.size() + 7) / 8 * 8, ' ');
    if (text.size() > detail::safetensors_header_limit) {
        throw input_error(place + ": the header is larger than the format allows");
    }
    for (std::size_t byte = 0; byte != sizeof(std::uint64_t); ++byte) {
        layout.head += static_cast<char>(text.size() >> (8 * byte) & 0xFFU);
    }
    layout.head += text;
    for (std::uint64_t& at : layout.offset) { at += layout.head.size(); }
    layout.file_bytes = layout.head.size() + offset;
    return layout;
}

} // namespace pulse::io
