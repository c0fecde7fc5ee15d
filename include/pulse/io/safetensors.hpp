#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/io/atomic_file.hpp>

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

/// A safetensors file that has been checked against the format's rules and can be read tensor by tensor.
///
/// Rules checked on opening: header length, JSON, known types, sizes, no name twice, no holes, no overlap, no bytes
/// left over. Source: the format section of huggingface/safetensors. Throws input_error naming the file and the tensor.
class safetensors_file {
public:
    explicit safetensors_file(const std::filesystem::path& path) : name_{"'" + path.string() + "'"} {
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

    /// In the order of their bytes.
    [[nodiscard]] std::span<const tensor_entry> tensors() const noexcept { return tensors_; }
    [[nodiscard]] const tensor_metadata& metadata() const noexcept { return metadata_; }

    /// The tensor of that name, or nullptr.
    [[nodiscard]] const tensor_entry* find(std::string_view name) const noexcept {
        const auto found =
            std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
        return found == tensors_.end() ? nullptr : &*found;
    }

    /// Fills `out`, whose size is the tensor's, with its bytes. Throws input_error when the file cannot be read.
    void read(const tensor_entry& tensor, std::span<std::byte> out) {
        if (out.size() != tensor.end - tensor.begin) {
            throw input_error(name_ + ": tensor '" + tensor.name + "' has " +
                              std::to_string(tensor.end - tensor.begin) + " bytes, not " + std::to_string(out.size()));
        }
        read_at(data_begin_ + tensor.begin, out);
    }

private:
    void read_at(std::uint64_t offset, std::span<std::byte> out) {
        file_.seekg(static_cast<std::streamoff>(offset));
        file_.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
        if (!file_ || static_cast<std::size_t>(file_.gcount()) != out.size()) {
            throw input_error("cannot read " + name_ + ": it ends too early");
        }
    }

    void parse(const std::string& header, std::uint64_t data_size) {
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

    std::string name_;
    std::ifstream file_{};
    std::uint64_t data_begin_{};
    std::vector<tensor_entry> tensors_{};
    tensor_metadata metadata_{};
};

/// Writes tensors and metadata, atomically; equal input gives equal bytes, whatever the order of `tensors`.
///
/// As the format's own writer does, tensors lie in order of falling type width, then of name, and the header is padded
/// to 8 bytes. Throws input_error on a name given twice, a size that does not fit, or a file that cannot be written.
inline void write_safetensors(const std::filesystem::path& path, std::span<const tensor_source> tensors,
                              const tensor_metadata& metadata = {}) {
    std::vector<const tensor_source*> order;
    order.reserve(tensors.size());
    for (const tensor_source& tensor : tensors) { order.push_back(&tensor); }
    std::sort(order.begin(), order.end(), [](const tensor_source* a, const tensor_source* b) {
        return a->type.bits != b->type.bits ? a->type.bits > b->type.bits : a->name < b->name;
    });

    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) {
        auto& object = header["__metadata__"] = nlohmann::ordered_json::object();
        for (const auto& [key, value] : metadata) { object[key] = value; }
    }
    std::set<std::string_view> names{"__metadata__"};
    std::uint64_t offset = 0;
    for (const tensor_source* tensor : order) {
        const std::string place = "'" + path.string() + "': tensor '" + tensor->name + "'";
        if (!names.insert(tensor->name).second) { throw input_error(place + ": its name is taken"); }
        const std::uint64_t size = detail::tensor_bytes(place, tensor->type, tensor->dims);
        if (size != tensor->bytes.size()) {
            throw input_error(place + ": " + std::to_string(tensor->bytes.size()) + " bytes for a shape of " +
                              std::to_string(size));
        }
        auto& entry = header[tensor->name];
        entry["dtype"] = tensor->type.name;
        entry["shape"] = tensor->dims;
        entry["data_offsets"] = {offset, offset + size};
        offset += size;
    }
    std::string text;
    try {
        text = header.dump();
    } catch (const nlohmann::json::exception& fault) {
        throw input_error("'" + path.string() + "': a name or metadata is not UTF-8: " + fault.what());
    }
    text.resize((text.size() + 7) / 8 * 8, ' ');
    if (text.size() > detail::safetensors_header_limit) {
        throw input_error("'" + path.string() + "': the header is larger than the format allows");
    }

    atomic_file file{path};
    const std::uint64_t header_size = text.size();
    file.write(std::as_bytes(std::span{&header_size, 1}));
    file.write(text);
    for (const tensor_source* tensor : order) { file.write(tensor->bytes); }
    file.commit();
}

} // namespace pulse::io
