#pragma once

#include <filesystem>
#include <variant>

#include <pulse/core/label.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/unet_config.hpp>
#include <pulse/nn/uvit.hpp>

namespace pulse::diffusers {

using backbone_config = std::variant<unet_config, hunyuan_dit_config, uvit_config>;

/// The structure of a folder's backbone, from its config.json: DIR/unet or DIR/transformer of a whole pipeline, or the
/// component's own folder. The classes are UNet2DModel, UNet2DConditionModel, HunyuanDiT2DModel and UViT.
///
/// sample_size is rounded down to a size that the network can halve; the number of text states is the number of
/// positions of the pipeline's text_encoder, else 77. Throws input_error naming the file, and a key whose value pulse
/// has no layers for.
[[nodiscard]] PULSE_INLINE backbone_config read_backbone(const std::filesystem::path& folder, const label& name);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/read_backbone.ipp> // IWYU pragma: keep
#endif
