#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/diffusers/folder_writer.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/single_file.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::diffusers {

/// Copies a component of a pipeline into a folder that is being written: byte for byte, except that weights from a
/// separate file are copied tensor by tensor, bit for bit. Throws input_error naming the path or the tensor.
template <class Disk>
void copy_component(const model_files& from, const std::string& name, folder_writer<Disk>& out) {
    const std::filesystem::path folder = from.folder / name;
    if (!weights_are_apart(from, name)) { return out.copy(folder, name); }
    std::error_code fault;
    for (std::filesystem::directory_iterator at{folder, fault}, end; !fault && at != end; at.increment(fault)) {
        if (goes_with_weights(*at)) { out.copy(at->path(), name / at->path().filename()); }
    }
    if (fault) { throw input_error("cannot read the folder '" + folder.string() + "': " + fault.message()); }
    const weights stored{from, name};
    std::vector<io::tensor_source> tensors;
    for (const auto& [tensor, one] : stored.tensors()) {
        tensors.push_back({tensor, one.entry->type, one.entry->dims, one.bytes()});
    }
    const char* const file =
        name.starts_with("text_encoder") ? "model.safetensors" : "diffusion_pytorch_model.safetensors";
    out.write_tensors(std::filesystem::path{name} / file, tensors);
}

} // namespace pulse::diffusers
