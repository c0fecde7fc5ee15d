#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/checkpoint/checkpoint.hpp>
#include <pulse/checkpoint/manifest.hpp>
#include <pulse/checkpoint/reader.hpp>
#include <pulse/checkpoint/shares.hpp>
#include <pulse/core/error.hpp>
#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/copy_component.hpp>
#include <pulse/diffusers/folder_writer.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/diffusers/single_file_writer.hpp>
#include <pulse/diffusers/weight_numbers.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/io/safetensors_header.hpp>
#include <pulse/model/image.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/runtime/parameters.hpp>

namespace pulse::diffusers {

namespace detail {

/// What `of_block` returns for the conditioning of a model, then layer by layer.
template <class M, class OfBlock>
[[nodiscard]] std::vector<parameter> parameters_of_blocks(const OfBlock& of_block) {
    std::vector<parameter> all;
    for (int block = M::is_conditioned ? conditioning_block : 0; block != static_cast<int>(M::part_count); ++block) {
        const std::vector<parameter> own = of_block(block);
        all.insert(all.end(), own.begin(), own.end());
    }
    return all;
}

} // namespace detail

/// All parameters of a model: those of its conditioning, then layer by layer.
template <class M>
[[nodiscard]] std::vector<parameter> model_parameters() {
    return detail::parameters_of_blocks<M>([](int block) { return parameters_of<M>(block); });
}

/// All weights of M that are not trained, in the same order: those of the UNet under a ControlNet.
template <class M>
[[nodiscard]] std::vector<parameter> locked_parameters() {
    return detail::parameters_of_blocks<M>([](int block) { return frozen_parameters_of<M>(block); });
}

/// Opens the weights of a pipeline's backbone, DIR/unet or DIR/transformer, and checks that it is M, or what is locked
/// under the ControlNet M.
///
/// Everything is checked before it returns: config, index, headers, names, shapes and types of all tensors. Throws
/// input_error, one line that names the file and the key or the tensors.
template <class M>
[[nodiscard]] weights open_backbone(const model_files& from) {
    const std::filesystem::path component = backbone_folder(M::config);
    require_fit(config_of(M::config), from.folder / component);
    weights found{from, component.string()};
    found.require({.parameters = reads_hint<M> ? locked_parameters<M>() : model_parameters<M>()});
    return found;
}

/// Names and shapes as in files.
[[nodiscard]] inline std::vector<io::tensor_shape> shapes_of(std::span<const parameter> parameters) {
    std::vector<io::tensor_shape> shapes;
    for (const parameter& what : parameters) {
        shapes.push_back({what.name.str(), io::f32, train::detail::dims_of(what)});
    }
    return shapes;
}

/// The values of `parameters` in a checkpoint: the weights, or the averages. Takes the memory of one piece. `prefix`
/// precedes their names: "first." or "second." in a checkpoint of a cascade_trainer.
///
/// The reader and the list must outlive the result. Throws input_error naming the tensor that the checkpoint lacks, or
/// the file that is damaged.
[[nodiscard]] inline tensor_values checkpoint_values(train::checkpoint_reader& reader,
                                                     std::span<const parameter> parameters,
                                                     train::tensor_part part = train::tensor_part::weight,
                                                     std::string_view prefix = {}) {
    return [&reader, parameters, part,
            before = std::string{prefix}](std::size_t tensor, const std::function<void(std::span<const float>)>& put) {
        const train::tensor_range<float> range{.what = parameters[tensor], .part = part, .prefix = before};
        const train::checkpoint_entry* const entry = reader.manifest().find(range.key());
        if (entry == nullptr) { throw input_error("the checkpoint has no tensor '" + range.key() + "'"); }
        std::vector<float> values;
        for (const train::checkpoint_piece& piece : entry->pieces) {
            values.resize(static_cast<std::size_t>(piece.elements));
            reader.read_piece(*entry, piece, values);
            put(values);
        }
    };
}

/// Throws input_error unless export_pipeline may write `to` from `from`: M is the backbone of `from`, and `to` can be
/// written, is not inside `from`, and has nothing that must not be replaced.
template <class M>
void require_exportable(const model_files& from, const std::filesystem::path& to) {
    const std::filesystem::path& folder = from.folder;
    static_cast<void>(read_pipeline(folder));
    require_fit(config_of(M::config), folder / backbone_folder(M::config));
    if (names_single_file(to)) { return require_single_file(from, to); }
    require_replaceable(to);
    const std::filesystem::path inside =
        std::filesystem::weakly_canonical(to).lexically_relative(std::filesystem::weakly_canonical(folder));
    if (inside != "." && !inside.empty() && *inside.begin() != "..") {
        throw input_error("'" + to.string() + "' is inside '" + folder.string() + "', which it would copy");
    }
    if (inside == "." && !from.file.empty()) {
        throw input_error("'" + to.string() + "' has the configs of '" + from.file.string() + "' and is not replaced");
    }
}

/// Writes the pipeline `from` with other weights of its backbone. `to` is a diffusers folder, into which everything
/// else is copied bit for bit, or, if it ends in .safetensors, a checkpoint of one file (write_single_file). `values`
/// are those of model_parameters<M>(). `from` and `to` may be the same. Throws input_error as read_pipeline(),
/// require_fit(), require_exportable<M>(), folder_writer and write_single_file() do.
template <class M>
void export_pipeline(const model_files& from, const std::filesystem::path& to, const tensor_values& values,
                     weights_format format = {}) {
    require_exportable<M>(from, to);
    const std::filesystem::path backbone = backbone_folder(M::config);
    const std::vector<io::tensor_shape> tensors = shapes_of(model_parameters<M>());
    if (names_single_file(to)) { return write_single_file(from, to, tensors, values, format); }
    const pipeline index = read_pipeline(from.folder);
    folder_writer<> out{to};
    out.copy(from.folder / "model_index.json", "model_index.json");
    for (const pipeline_component& one : index.components) {
        if (one.name != backbone) { copy_component(from, one.name, out); }
    }
    out.copy(from.folder / backbone / "config.json", backbone / "config.json");
    out.write_weights(backbone / "diffusion_pytorch_model", tensors, values, format);
    out.commit();
}

/// The same with the weights, or the averages, of the model in a checkpoint, whose folder trainer::save returns.
/// `prefix` is that of checkpoint_values. Also throws as checkpoint_reader and checkpoint_values do.
template <class M>
void export_checkpoint(const std::filesystem::path& checkpoint, const model_files& from,
                       const std::filesystem::path& to, train::tensor_part part = train::tensor_part::weight,
                       weights_format format = {}, std::string_view prefix = {}) {
    train::checkpoint_reader reader{checkpoint};
    const std::vector<parameter> all = model_parameters<M>();
    export_pipeline<M>(from, to, checkpoint_values(reader, all, part, prefix), format);
}

} // namespace pulse::diffusers
