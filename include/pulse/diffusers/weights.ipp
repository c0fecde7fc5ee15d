#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/checkpoint/checkpoint.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/half.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/model/parameter.hpp>

namespace pulse::diffusers {

namespace detail {

/// Names that diffusers and transformers give the weights of a component: one file, and the index of shards. Half
/// precision comes last.
struct weights_name {
    const char* file{};
    const char* index{};
};
inline constexpr std::array<weights_name, 6> weights_names{
    {{"diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.safetensors.index.json"},
     {"model.safetensors", "model.safetensors.index.json"},
     {"diffusion_pytorch_model.fp16.safetensors", "diffusion_pytorch_model.safetensors.index.fp16.json"},
     {"model.fp16.safetensors", "model.safetensors.index.fp16.json"},
     {"diffusion_pytorch_model.fp16.safetensors", "diffusion_pytorch_model.fp16.safetensors.index.json"},
     {"model.fp16.safetensors", "model.fp16.safetensors.index.json"}}};

[[nodiscard]] inline std::string shown_name(std::string_view name) { return io::printable(std::string{name}, 95); }

/// Appends such as "3 tensors are missing (a, b, c)": at most five of a list's names; nothing for an empty list.
inline void append_names(std::string& text, const std::vector<std::string>& names, const char* one, const char* many) {
    constexpr std::size_t most = 5;
    if (names.empty()) { return; }
    text += (text.empty() ? "" : "; ") + std::to_string(names.size()) + (names.size() == 1 ? one : many) + " (";
    for (std::size_t i = 0; i != std::min(most, names.size()); ++i) { text += (i == 0 ? "" : ", ") + names[i]; }
    text += names.size() > most ? ", ...)" : ")";
}

[[nodiscard]] inline std::string shape_text(std::span<const std::int64_t> dims) {
    std::string text = "[";
    for (const std::int64_t extent : dims) { text += (text.size() == 1 ? "" : ", ") + std::to_string(extent); }
    return text + "]";
}

} // namespace detail

PULSE_INLINE weights::weights(const std::filesystem::path& folder) : name_{"'" + folder.string() + "'"} {
    std::error_code unused;
    if (!std::filesystem::is_directory(folder, unused)) { throw input_error(name_ + " is not a folder"); }
    for (const detail::weights_name& name : detail::weights_names) {
        if (std::filesystem::exists(folder / name.file, unused)) {
            add(folder / name.file);
        } else if (std::filesystem::exists(folder / name.index, unused)) {
            read_index(folder / name.index);
        } else {
            continue;
        }
        return;
    }
    for (std::filesystem::directory_iterator at{folder, unused}, end; !unused && at != end; at.increment(unused)) {
        const std::string file = at->path().filename().string();
        if (file.ends_with(".safetensors")) {
            throw input_error(name_ + " has the weights " + io::printable(file, 95) +
                              ", which is not one of the names that are read: diffusion_pytorch_model.safetensors, "
                              "model.safetensors and those of the variant fp16; rename it");
        }
        if (!file.ends_with(".bin") && !file.ends_with(".bin.index.json")) { continue; }
        throw input_error(name_ + " has no weights except " + io::printable(file, 95) +
                          ", which runs code when it is read; DiffusionPipeline.from_pretrained(FOLDER)"
                          ".save_pretrained(NEW, safe_serialization=True) of diffusers converts them");
    }
    throw input_error(name_ + " has no weights: neither diffusion_pytorch_model.safetensors nor model.safetensors, nor "
                              "an index of either");
}

PULSE_INLINE weights::weights(const model_files& from, std::string_view component) {
    if (!weights_are_apart(from, component)) {
        *this = weights{from.folder / component};
        return;
    }
    name_ = "'" + from.file.string() + "' (" + std::string{component} + ")";
    if (from.file.extension() != ".safetensors") {
        throw input_error(
            "'" + from.file.string() +
            "' is not a .safetensors file; other checkpoints run code when they are read: "
            "StableDiffusionPipeline.from_single_file(FILE).save_pretrained(FOLDER) makes a folder of one");
    }
    require_content(from.file);
    const io::safetensors_file& file = *files_.emplace_back(std::make_unique<io::safetensors_file>(from.file));
    const single_file_layout layout{from.folder, component};
    bool any = false;
    for (const io::tensor_entry& entry : file.tensors()) {
        if (!entry.name.starts_with(layout.root())) { continue; }
        any = true;
        for (const stored_tensor& is : layout.tensors_in(entry.name)) { add_stored(file, entry, is); }
    }
    if (!any) {
        throw input_error(name_ + " has no tensors '" + layout.root() + "*', which a model like '" +
                          from.folder.string() + "' has");
    }
}

PULSE_INLINE void weights::add_stored(const io::safetensors_file& file, const io::tensor_entry& entry,
                                      const stored_tensor& is) {
    io::tensor_entry& own = renamed_.emplace_back(entry);
    own.name = is.name;
    if (is.part >= 0) {
        constexpr std::int64_t parts = 3;
        if (own.dims.empty() || own.dims[0] % parts != 0) {
            throw input_error(name_ + ": tensor '" + detail::shown_name(entry.name) +
                              "' does not have three equal parts");
        }
        own.dims[0] /= parts;
        const std::uint64_t bytes = (entry.end - entry.begin) / parts;
        own.begin += static_cast<std::uint64_t>(is.part) * bytes;
        own.end = own.begin + bytes;
    }
    tensor added{&own, &file};
    if (is.transposed && own.dims.size() == 2 && own.end != own.begin) {
        if (own.type.bits % 8 != 0) {
            throw input_error(name_ + ": tensor '" + detail::shown_name(entry.name) + "' is " +
                              std::string{own.type.name} + ", which is not supported");
        }
        added.turned = &turned_.emplace_back(transposed(file.bytes(entry), own.dims[0], own.dims[1]));
        std::swap(own.dims[0], own.dims[1]);
    }
    if (is.as_convolution && own.dims.size() == 4 && own.dims[2] == 1 && own.dims[3] == 1) { own.dims.resize(2); }
    if (!tensors_.try_emplace(own.name, added).second) {
        throw input_error(name_ + ": tensor '" + detail::shown_name(own.name) + "' occurs twice, also as '" +
                          detail::shown_name(entry.name) + "'");
    }
}

PULSE_INLINE void weights::add(const std::filesystem::path& file) {
    require_content(file);
    const io::safetensors_file& added = *files_.emplace_back(std::make_unique<io::safetensors_file>(file));
    for (const io::tensor_entry& entry : added.tensors()) {
        // The reader refuses duplicates within a file, so there are two files.
        if (!tensors_.try_emplace(entry.name, tensor{&entry, &added}).second) {
            throw input_error("'" + file.string() + "': tensor '" + detail::shown_name(entry.name) +
                              "' is also in another shard");
        }
    }
}

PULSE_INLINE void weights::read_index(const std::filesystem::path& index) {
    const std::string source = "'" + index.string() + "'";
    const nlohmann::json json = io::parse_json(io::read_file(index), source);
    const auto map = json.is_object() ? json.find("weight_map") : json.end();
    if (!json.is_object() || map == json.end() || !map->is_object() || map->empty()) {
        throw input_error(source + ": weight_map must be an object that names the shard of each tensor");
    }
    std::map<std::string, std::vector<std::string>> shards;
    for (const auto& [name, shard] : map->items()) {
        const std::string place = source + ": weight_map '" + detail::shown_name(name) + "'";
        if (!shard.is_string()) { throw input_error(place + " must be the name of a file"); }
        const auto& file = shard.get_ref<const std::string&>();
        if (file.find('/') != std::string::npos || file.find('\0') != std::string::npos ||
            !file.ends_with(".safetensors")) {
            throw input_error(place + " is '" + io::printable(file) + "', not a safetensors file of the same folder");
        }
        shards[file].push_back(name);
    }
    for (const auto& [file, names] : shards) {
        const std::filesystem::path path = index.parent_path() / file;
        std::error_code unused;
        if (!std::filesystem::exists(path, unused)) {
            throw input_error(source + ": the shard '" + io::printable(file, 95) + "' is missing");
        }
        add(path);
        for (const std::string& name : names) {
            const auto found = tensors_.find(name);
            if (found == tensors_.end() || found->second.file != files_.back().get()) {
                throw input_error(source + ": tensor '" + detail::shown_name(name) + "' is not in '" +
                                  io::printable(file, 95) + "', where weight_map says that it is");
            }
        }
        if (names.size() != files_.back()->tensors().size()) {
            const std::set<std::string_view> listed(names.begin(), names.end());
            for (const io::tensor_entry& entry : files_.back()->tensors()) {
                if (listed.contains(entry.name)) { continue; }
                throw input_error("'" + path.string() + "': tensor '" + detail::shown_name(entry.name) +
                                  "' is not in the weight_map of " + source);
            }
        }
    }
}

PULSE_INLINE void weights::rename(std::string_view from, const std::string& to) {
    const auto found = tensors_.find(from);
    if (found == tensors_.end() || tensors_.contains(to)) { return; }
    auto renamed = tensors_.extract(found);
    renamed.key() = to;
    tensors_.insert(std::move(renamed));
}

PULSE_INLINE void weights::require(const weights_request& request) {
    std::vector<std::string> missing;
    std::vector<std::string> unknown;
    std::vector<std::string> misshapen;
    std::vector<std::string> mistyped;
    std::set<std::string_view> known(request.ignored.begin(), request.ignored.end());
    for (const parameter& what : request.parameters) {
        const std::string_view name = what.name.view();
        const auto found = tensors_.find(name);
        if (found == tensors_.end()) {
            missing.emplace_back(name);
            continue;
        }
        known.insert(found->first);
        const io::tensor_entry& entry = *found->second.entry;
        const std::vector<std::int64_t> wanted = train::detail::dims_of(what);
        if (entry.dims != wanted) {
            misshapen.push_back(entry.name + ": " + detail::shape_text(entry.dims) + " in the file, " +
                                detail::shape_text(wanted) + " in the model");
        }
        if (!(entry.type == io::f32 || entry.type == io::f16 || entry.type == io::bf16)) {
            mistyped.push_back(entry.name + ": " + std::string{entry.type.name});
        }
    }
    for (const auto& [name, unused] : tensors_) {
        if (!known.contains(name)) { unknown.push_back(detail::shown_name(name)); }
    }
    std::string why;
    detail::append_names(why, missing, " tensor is missing", " tensors are missing");
    detail::append_names(why, misshapen, " tensor has another shape", " tensors have another shape");
    detail::append_names(why, mistyped, " tensor is not F32, F16 or BF16", " tensors are not F32, F16 or BF16");
    std::string more;
    detail::append_names(more, unknown, " tensor that the model does not have is not read",
                         " tensors that the model does not have are not read");
    if (!why.empty()) { throw input_error(name_ + ": " + why + (more.empty() ? "" : "; ") + more); }
    unread_ = more.empty() ? more : name_ + ": " + more;
}

PULSE_INLINE void weights::read(const parameter& what, std::int64_t first, std::span<float> out) const {
    const tensor& found = tensors_.at(what.name.str());
    convert_elements(found.bytes(), found.entry->type, first, out);
}

PULSE_INLINE std::vector<std::byte> transposed(std::span<const std::byte> bytes, std::int64_t rows,
                                               std::int64_t columns) {
    const auto height = static_cast<std::size_t>(rows);
    const auto width = static_cast<std::size_t>(columns);
    const std::size_t size = bytes.size() / (height * width);
    std::vector<std::byte> turned(bytes.size());
    for (std::size_t row = 0; row != height; ++row) {
        for (std::size_t column = 0; column != width; ++column) {
            std::memcpy(&turned[(column * height + row) * size], &bytes[(row * width + column) * size], size);
        }
    }
    return turned;
}

PULSE_INLINE void convert_elements(std::span<const std::byte> bytes, io::element_type type, std::int64_t first,
                                   std::span<float> out) {
    const std::size_t width = static_cast<std::size_t>(type.bits) / 8;
    const std::byte* at = bytes.subspan(static_cast<std::size_t>(first) * width, out.size() * width).data();
    if (type == io::f32) {
        if (!out.empty()) { std::memcpy(out.data(), at, out.size_bytes()); }
        return;
    }
    const bool half = type == io::f16;
    for (float& value : out) {
        std::uint16_t bits{};
        std::memcpy(&bits, at, sizeof bits); // the tensor may lie at an odd address
        value = half ? io::float_of_half(bits) : io::float_of_bfloat16(bits);
        at += sizeof bits;
    }
}

} // namespace pulse::diffusers
