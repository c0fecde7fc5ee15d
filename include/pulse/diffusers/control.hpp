#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include <pulse/checkpoint/manifest.hpp>
#include <pulse/checkpoint/reader.hpp>
#include <pulse/core/error.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/folder_writer.hpp>
#include <pulse/diffusers/single_file_writer.hpp>
#include <pulse/diffusers/weight_numbers.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/model/image.hpp>
#include <pulse/model/parameter.hpp>

namespace pulse::diffusers {

// Folders of diffusers' ControlNetModel have config.json and weights in the folder itself: the trained branch of M, a
// controlnet. The UNet under it is in a pipeline of its own.

/// Opens the weights of a ControlNet and checks that they are M's.
///
/// Everything is checked before it returns: config, index, headers, names, shapes and types of all tensors. Throws
/// input_error, one line that names the file and the key or the tensors.
template <reads_hint M>
[[nodiscard]] weights open_control(const std::filesystem::path& folder) {
    require_fit(control_config_of(M::config), folder);
    weights found{folder};
    found.require({.parameters = model_parameters<M>()});
    return found;
}

/// Throws input_error unless export_control may write M's folder to `to`: diffusers has such a ControlNet, and `to` can
/// be written and is absent, empty, or a ControlNet's folder with nothing else in it.
template <reads_hint M>
void require_control_exportable(const std::filesystem::path& to) {
    const component_config config = control_config_of(M::config);
    if (names_single_file(to)) {
        throw input_error("'" + to.string() + "' is the name of a file: a ControlNet is written as a folder");
    }
    require_replaceable(to, config.class_name);
}

/// Writes the folder of a ControlNet that ControlNetModel.from_pretrained reads; it appears whole or not at all.
/// `values` are those of model_parameters<M>(). Throws input_error as require_control_exportable<M>() and folder_writer
/// do.
template <reads_hint M>
void export_control(const std::filesystem::path& to, const tensor_values& values, weights_format format = {}) {
    require_control_exportable<M>(to);
    const component_config config = control_config_of(M::config);
    folder_writer<> out{to, {}, config.class_name};
    out.write("config.json", print_config(config));
    out.write_weights("diffusion_pytorch_model", shapes_of(model_parameters<M>()), values, format);
    out.commit();
}

/// The same with the weights, or the averages, of the model in a checkpoint, whose folder trainer::save returns.
/// `prefix` is that of checkpoint_values. Also throws as checkpoint_reader and checkpoint_values do.
template <reads_hint M>
void export_control(const std::filesystem::path& checkpoint, const std::filesystem::path& to,
                    train::tensor_part part = train::tensor_part::weight, weights_format format = {},
                    std::string_view prefix = {}) {
    train::checkpoint_reader reader{checkpoint};
    const std::vector<parameter> all = model_parameters<M>();
    export_control<M>(to, checkpoint_values(reader, all, part, prefix), format);
}

} // namespace pulse::diffusers
