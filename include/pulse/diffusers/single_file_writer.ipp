#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pulse/checkpoint/folder.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/diffusers/single_file.hpp>
#include <pulse/diffusers/single_file_writer.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::diffusers {

namespace detail {

/// The tensors of a checkpoint of one file other than the UNet's, and their bytes, one piece after another.
class copied_tensors {
public:
    explicit copied_tensors(const model_files& from) {
        if (!from.file.empty()) {
            add_file(from);
            return;
        }
        const pipeline index = read_pipeline(from.folder);
        for (const std::string_view component : single_file_components) {
            if (component != "unet" && index.find(component) != nullptr) { add_component(from.folder, component); }
        }
    }

    [[nodiscard]] const std::vector<io::tensor_shape>& shapes() const noexcept { return shapes_; }
    [[nodiscard]] std::span<const std::span<const std::byte>> bytes(std::size_t tensor) const {
        return bytes_.at(tensor);
    }
    [[nodiscard]] const io::tensor_metadata& metadata() const noexcept { return metadata_; }

private:
    void add_file(const model_files& from) {
        const io::safetensors_file& file = file_.emplace(from.file);
        const single_file_layout unet{from.folder, "unet"};
        for (const io::tensor_entry& entry : file.tensors()) {
            if (entry.name.starts_with(unet.root()) || entry.name.starts_with("model_ema.")) { continue; }
            shapes_.push_back({entry.name, entry.type, entry.dims});
            bytes_.push_back({file.bytes(entry)});
        }
        metadata_ = file.metadata();
    }
    void add_component(const std::filesystem::path& folder, std::string_view component) {
        const std::string place = "'" + (folder / component).string() + "': tensor '";
        const single_file_layout layout{folder, component};
        const weights& from = components_.emplace_back(folder / component);
        std::map<std::string, std::size_t> whole; // by name: tensors that are made of parts
        for (const auto& [name, one] : from.tensors()) {
            if (name.ends_with("position_ids")) { continue; } // just 0, 1, 2, ...
            const stored_tensor stored = layout.place_of(name);
            io::tensor_shape shape{stored.name, one.entry->type, one.entry->dims};
            std::span<const std::byte> bytes = one.bytes();
            if (stored.transposed && shape.dims.size() == 2 && !bytes.empty()) {
                bytes = turned_.emplace_back(transposed(bytes, shape.dims[0], shape.dims[1]));
                std::swap(shape.dims[0], shape.dims[1]);
            }
            if (stored.as_convolution && shape.dims.size() == 2) { shape.dims.insert(shape.dims.end(), {1, 1}); }
            if (stored.part < 0) {
                shapes_.push_back(std::move(shape));
                bytes_.push_back({bytes});
                continue;
            }
            if (shape.dims.empty()) { throw input_error(place + io::printable(name, 95) + "' has no rows"); }
            shape.dims[0] *= 3;
            const auto [at, added] = whole.try_emplace(stored.name, shapes_.size());
            if (added) {
                shapes_.push_back(shape);
                bytes_.emplace_back(3);
            }
            const io::tensor_shape& other = shapes_[at->second];
            if (other.dims != shape.dims || other.type != shape.type) {
                throw input_error(place + io::printable(name, 95) +
                                  "' does not have the shape and type of the others (q, k, v)");
            }
            bytes_[at->second][static_cast<std::size_t>(stored.part)] = bytes;
        }
        for (const auto& [name, at] : whole) {
            for (const std::span<const std::byte> part : bytes_[at]) {
                if (part.data() == nullptr) { throw input_error(place + name + "' lacks its q, k or v"); }
            }
        }
    }

    std::deque<weights> components_{};
    std::optional<io::safetensors_file> file_{};
    std::deque<std::vector<std::byte>> turned_{};
    std::vector<io::tensor_shape> shapes_{};
    std::vector<std::vector<std::span<const std::byte>>> bytes_{};
    io::tensor_metadata metadata_{};
};

/// Checks that `to` may be a checkpoint of one file, and returns what it will have beside the UNet.
[[nodiscard]] inline copied_tensors copied_beside(const model_files& from, const std::filesystem::path& to) {
    const std::string place = "'" + to.string() + "'";
    const single_file_layout unet{from.folder, "unet"};
    const std::filesystem::path inside =
        std::filesystem::weakly_canonical(to).lexically_relative(std::filesystem::weakly_canonical(from.folder));
    if (!inside.empty() && *inside.begin() != ".." && inside.has_parent_path()) {
        throw input_error(place + " is inside a component of '" + from.folder.string() + "'");
    }
    std::error_code unused;
    if (std::filesystem::exists(to, unused)) {
        if (std::filesystem::is_directory(to, unused)) {
            throw input_error(place + " is a folder; a checkpoint of one file does not replace it");
        }
        const io::safetensors_file old{to};
        if (std::ranges::none_of(old.tensors(), [&](const auto& one) { return one.name.starts_with(unet.root()); })) {
            throw input_error(place + " is not a checkpoint of one file, with tensors " + unet.root() +
                              "*: it is not replaced");
        }
    }
    return copied_tensors{from};
}

} // namespace detail

PULSE_INLINE void require_single_file(const model_files& from, const std::filesystem::path& to) {
    train::require_place(to);
    static_cast<void>(io::lay_out_safetensors("'" + to.string() + "'", detail::copied_beside(from, to).shapes()));
}

PULSE_INLINE void write_single_file(const model_files& from, const std::filesystem::path& to,
                                    std::vector<io::tensor_shape> tensors, const tensor_values& values,
                                    weights_format format) {
    const detail::copied_tensors copied = detail::copied_beside(from, to);
    const std::string place = "'" + to.string() + "'";
    const single_file_layout unet{from.folder, "unet"};
    for (io::tensor_shape& tensor : tensors) {
        tensor.name = unet.place_of(tensor.name).name;
        tensor.type = format.type;
    }
    const std::size_t trained = tensors.size();
    tensors.insert(tensors.end(), copied.shapes().begin(), copied.shapes().end());
    io::tensor_metadata metadata = copied.metadata();
    metadata.try_emplace("format", "pt");
    const io::safetensors_layout layout = io::lay_out_safetensors(place, tensors, metadata);
    std::error_code fault;
    if (to.has_parent_path()) { std::filesystem::create_directories(to.parent_path(), fault); }
    if (fault) { throw input_error("cannot create '" + to.parent_path().string() + "': " + fault.message()); }
    io::atomic_file out{to};
    out.write(layout.head);
    for (const std::size_t i : layout.order) {
        if (i < trained) {
            detail::write_numbers(values, i, format.type, layout.bytes[i], place + ": tensor '" + tensors[i].name + "'",
                                  [&](std::span<const std::byte> bytes) { out.write(bytes); });
        } else {
            for (const std::span<const std::byte> bytes : copied.bytes(i - trained)) { out.write(bytes); }
        }
    }
    out.commit();
}

} // namespace pulse::diffusers
