#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::io {

namespace detail {

/// JSON whose objects name no key twice.
[[nodiscard]] inline nlohmann::json parse_unique_keys(const std::string& place, const std::string& text) {
    using json = nlohmann::json;
    std::vector<std::set<std::string>> keys;
    const auto watch = [&](int, json::parse_event_t event, json& value) {
        if (event == json::parse_event_t::object_start) {
            keys.emplace_back();
        } else if (event == json::parse_event_t::object_end) {
            keys.pop_back();
        } else if (event == json::parse_event_t::key) {
            const auto& key = value.get_ref<const std::string&>();
            if (!keys.back().insert(key).second) { throw input_error(place + ": '" + key + "' is named twice"); }
        }
        return true;
    };
    try {
        return json::parse(text, watch);
    } catch (const json::exception& fault) { throw input_error(place + ": its header is no JSON: " + fault.what()); }
}

/// One entry of the header, checked by itself.
[[nodiscard]] inline tensor_entry parse_tensor(const std::string& file, const std::string& name,
                                               const nlohmann::json& fields) {
    const std::string place = file + ": tensor '" + name + "'";
    const auto is_count = [](const nlohmann::json& value) {
        return value.is_number_unsigned() &&
               value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    };
    if (!fields.is_object() || fields.size() != 3) {
        throw input_error(place + ": its entry is not dtype, shape and data_offsets");
    }
    tensor_entry entry{.name = name};
    const auto dtype = fields.find("dtype");
    if (dtype == fields.end() || !dtype->is_string()) { throw input_error(place + ": no dtype"); }
    const auto type = std::find_if(element_types.begin(), element_types.end(), [&](const element_type& known) {
        return known.name == dtype->get_ref<const std::string&>();
    });
    if (type == element_types.end()) {
        throw input_error(place + ": unknown dtype '" + dtype->get<std::string>() + "'");
    }
    entry.type = *type;
    const auto shape = fields.find("shape");
    if (shape == fields.end() || !shape->is_array() || !std::all_of(shape->begin(), shape->end(), is_count)) {
        throw input_error(place + ": its shape is no list of whole numbers");
    }
    for (const auto& extent : *shape) { entry.dims.push_back(extent.get<std::int64_t>()); }
    const auto offsets = fields.find("data_offsets");
    if (offsets == fields.end() || !offsets->is_array() || offsets->size() != 2 ||
        !std::all_of(offsets->begin(), offsets->end(), is_count)) {
        throw input_error(place + ": its data_offsets are not two whole numbers");
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
            throw input_error(place + ": tensor '" + tensors[i].name + "': " + std::to_string(tensors[i].bytes.size()) +
                              " bytes for a shape of " + std::to_string(layout.bytes[i]));
        }
    }
    atomic_file file{path};
    file.write(layout.head);
    for (const std::size_t i : layout.order) { file.write(tensors[i].bytes); }
    file.commit();
}

PULSE_INLINE safetensors_file::safetensors_file(const std::filesystem::path& path) : name_{"'" + path.string() + "'"} {
    std::error_code missing;
    if (!std::filesystem::is_regular_file(path, missing)) {
        throw input_error("cannot open " + name_ + ": no such file");
    }
    file_.open(path, std::ios::binary);
    if (!file_) { throw input_error("cannot open " + name_ + ": " + std::strerror(errno)); }
    const std::uint64_t size = std::filesystem::file_size(path);
    std::uint64_t header_size = 0;
    if (size < sizeof header_size) { throw input_error(name_ + " is too short for a safetensors file"); }
    read_at(0, std::as_writable_bytes(std::span{&header_size, 1}));
    if (header_size > detail::safetensors_header_limit || header_size > size - sizeof header_size) {
        throw input_error(name_ + ": its header length " + std::to_string(header_size) +
                          " is beyond the file or the format's limit");
    }
    std::string header(static_cast<std::size_t>(header_size), '\0');
    read_at(sizeof header_size, std::as_writable_bytes(std::span{header}));
    if (header.empty() || header.front() != '{') { throw input_error(name_ + ": its header is no JSON object"); }
    data_begin_ = sizeof header_size + header_size;
    parse(header, size - data_begin_);
}

PULSE_INLINE void safetensors_file::read(const tensor_entry& tensor, std::span<std::byte> out) {
    if (out.size() != tensor.end - tensor.begin) {
        throw input_error(name_ + ": tensor '" + tensor.name + "' has " +
                          std::to_string(tensor.end - tensor.begin) + " bytes, not " + std::to_string(out.size()));
    }
    read_at(data_begin_ + tensor.begin, out);
}

PULSE_INLINE void safetensors_file::read_at(std::uint64_t offset, std::span<std::byte> out) {
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
    if (!file_ || static_cast<std::size_t>(file_.gcount()) != out.size()) {
        throw input_error("cannot read " + name_ + ": it ends too early");
    }
}

PULSE_INLINE void safetensors_file::parse(const std::string& header, std::uint64_t data_size) {
    const auto json = detail::parse_unique_keys(name_, header);
    for (const auto& [name, fields] : json.items()) {
        if (name == "__metadata__") {
            if (!fields.is_object()) { throw input_error(name_ + ": __metadata__ is no object"); }
            for (const auto& [key, value] : fields.items()) {
                if (!value.is_string()) { throw input_error(name_ + ": __metadata__ '" + key + "' is no string"); }
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
            throw input_error(name_ + ": tensor '" + tensor.name + "' begins at " + std::to_string(tensor.begin) +
                              ", the one before it ends at " + std::to_string(expected));
        }
        expected = tensor.end;
    }
    if (expected != data_size) {
        throw input_error(name_ + ": its tensors fill " + std::to_string(expected) + " bytes, the file has " +
                          std::to_string(data_size));
    }
}

} // namespace pulse::io
