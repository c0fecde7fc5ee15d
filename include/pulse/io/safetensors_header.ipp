#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::io {

namespace detail {

PULSE_INLINE std::uint64_t tensor_bytes(const std::string& place, element_type type,
                                        std::span<const std::int64_t> dims) {
    std::uint64_t bits = static_cast<std::uint64_t>(type.bits);
    for (const std::int64_t extent : dims) {
        if (extent < 0) { throw input_error(place + ": its shape has a negative extent"); }
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

PULSE_INLINE safetensors_layout lay_out_safetensors(const std::string& place, std::span<const tensor_shape> tensors,
                                                    const tensor_metadata& metadata, tensor_order order) {
    safetensors_layout layout{.offset = std::vector<std::uint64_t>(tensors.size(), 0),
                              .bytes = std::vector<std::uint64_t>(tensors.size(), 0)};
    for (std::size_t i = 0; i != tensors.size(); ++i) { layout.order.push_back(i); }
    if (order == tensor_order::by_name) {
        std::sort(layout.order.begin(), layout.order.end(), [&](std::size_t i, std::size_t j) {
            const tensor_shape& a = tensors[i];
            const tensor_shape& b = tensors[j];
            return a.type.bits != b.type.bits ? a.type.bits > b.type.bits : a.name < b.name;
        });
    }

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
        if (!names.insert(tensor.name).second) { throw input_error(where + ": its name is already taken"); }
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
