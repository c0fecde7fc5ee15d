#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::io {

namespace detail {

/// Parses one entry of the header and checks it on its own.
[[nodiscard]] inline tensor_entry parse_tensor(const std::string& file, const std::string& name,
                                               const nlohmann::json& fields) {
    const std::string place = file + ": tensor '" + printable(name, 95) + "'";
    const auto is_count = [](const nlohmann::json& value) {
        return value.is_number_unsigned() &&
               value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    };
    if (!fields.is_object() || fields.size() != 3) {
        throw input_error(place + ": its entry must have dtype, shape and data_offsets, and nothing else");
    }
    tensor_entry entry{.name = name};
    const auto dtype = fields.find("dtype");
    if (dtype == fields.end() || !dtype->is_string()) {
        throw input_error(place + ": its dtype is missing or not a string");
    }
    const auto type = std::find_if(element_types.begin(), element_types.end(), [&](const element_type& known) {
        return known.name == dtype->get_ref<const std::string&>();
    });
    if (type == element_types.end()) {
        throw input_error(place + ": unknown dtype '" + printable(dtype->get<std::string>()) + "'");
    }
    entry.type = *type;
    const auto shape = fields.find("shape");
    if (shape == fields.end() || !shape->is_array() || !std::all_of(shape->begin(), shape->end(), is_count)) {
        throw input_error(place + ": its shape must be a list of whole numbers");
    }
    for (const auto& extent : *shape) { entry.dims.push_back(extent.get<std::int64_t>()); }
    const auto offsets = fields.find("data_offsets");
    if (offsets == fields.end() || !offsets->is_array() || offsets->size() != 2 ||
        !std::all_of(offsets->begin(), offsets->end(), is_count)) {
        throw input_error(place + ": its data_offsets must be two whole numbers");
    }
    entry.begin = (*offsets)[0].get<std::uint64_t>();
    entry.end = (*offsets)[1].get<std::uint64_t>();
    if (entry.end < entry.begin || entry.end - entry.begin != tensor_bytes(place, entry.type, entry.dims)) {
        throw input_error(place + ": its data_offsets do not fit its dtype and shape");
    }
    return entry;
}

} // namespace detail

PULSE_INLINE void write_safetensors(const std::filesystem::path& path, std::span<const tensor_source> tensors,
                                    const tensor_metadata& metadata) {
    std::vector<tensor_shape> shapes;
    shapes.reserve(tensors.size());
    for (const tensor_source& tensor : tensors) { shapes.push_back({tensor.name, tensor.type, tensor.dims}); }
    const std::string place = "'" + path.string() + "'";
    const safetensors_layout layout = lay_out_safetensors(place, shapes, metadata);
    for (std::size_t i = 0; i != tensors.size(); ++i) {
        if (layout.bytes[i] != tensors[i].bytes.size()) {
            throw input_error(place + ": tensor '" + tensors[i].name + "' has " +
                              std::to_string(tensors[i].bytes.size()) + " bytes, but its shape needs " +
                              std::to_string(layout.bytes[i]));
        }
    }
    atomic_file file{path};
    file.write(layout.head);
    for (const std::size_t i : layout.order) { file.write(tensors[i].bytes); }
    file.commit();
}

PULSE_INLINE safetensors_file::safetensors_file(const std::filesystem::path& path) :
    name_{"'" + path.string() + "'"}, file_{path} {
    const std::uint64_t size = file_.bytes().size();
    std::uint64_t header_size = 0;
    if (size < sizeof header_size) { throw input_error(name_ + " is too short for a safetensors file"); }
    std::memcpy(&header_size, file_.bytes().data(), sizeof header_size);
    if (header_size > detail::safetensors_header_limit || header_size > size - sizeof header_size) {
        throw input_error(name_ + ": its header length " + std::to_string(header_size) +
                          " exceeds the file or the format's limit");
    }
    const std::span<const std::byte> head = file_.bytes().subspan(sizeof header_size, header_size);
    const std::string_view header{reinterpret_cast<const char*>(head.data()), head.size()};
    if (header.empty() || header.front() != '{') { throw input_error(name_ + ": its header is not a JSON object"); }
    data_begin_ = sizeof header_size + header_size;
    parse(header, size - data_begin_);
}

PULSE_INLINE void safetensors_file::read(const tensor_entry& tensor, std::span<std::byte> out) const {
    const std::span<const std::byte> all = bytes(tensor);
    if (out.size() != all.size()) {
        throw input_error(name_ + ": tensor '" + tensor.name + "' has " + std::to_string(all.size()) + " bytes, not " +
                          std::to_string(out.size()));
    }
    std::copy(all.begin(), all.end(), out.begin());
}

PULSE_INLINE void safetensors_file::parse(std::string_view header, std::uint64_t data_size) {
    // The loop refers to this value, so it must not be a temporary.
    const nlohmann::json all = parse_json(header, name_ + ": its header");
    for (const auto& [name, fields] : all.items()) {
        if (name == "__metadata__") {
            if (!fields.is_object()) { throw input_error(name_ + ": __metadata__ must be an object"); }
            for (const auto& [key, value] : fields.items()) {
                if (!value.is_string()) {
                    throw input_error(name_ + ": __metadata__ '" + printable(key) + "' must be a string");
                }
                metadata_.emplace(key, value.get<std::string>());
            }
        } else {
            tensors_.push_back(detail::parse_tensor(name_, name, fields));
        }
    }
    std::stable_sort(tensors_.begin(), tensors_.end(), [](const tensor_entry& a, const tensor_entry& b) {
        return std::pair{a.begin, a.end} < std::pair{b.begin, b.end};
    });
    std::uint64_t expected = 0;
    for (const tensor_entry& tensor : tensors_) {
        if (tensor.begin != expected) {
            throw input_error(name_ + ": tensor '" + printable(tensor.name, 95) + "' begins at " +
                              std::to_string(tensor.begin) + ", but the one before it ends at " +
                              std::to_string(expected));
        }
        expected = tensor.end;
    }
    if (expected != data_size) {
        throw input_error(name_ + ": its tensors fill " + std::to_string(expected) + " bytes, but " +
                          std::to_string(data_size) + " follow its header");
    }
}

} // namespace pulse::io
