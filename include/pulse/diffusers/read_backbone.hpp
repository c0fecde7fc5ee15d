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

/// The structure of a folder's backbone, as its config.json says it: DIR/unet or DIR/transformer of a whole pipeline,
/// or the component's own folder. The classes are UNet2DModel, UNet2DConditionModel, HunyuanDiT2DModel and UViT.
///
/// sample_size becomes the nearest below that the network halves; text states are as many as the pipeline's
/// text_encoder has positions, else 77. Throws input_error naming the file, and the key whose value pulse has no layers
/// for.
[[nodiscard]] PULSE_INLINE backbone_config read_backbone(const std::filesystem::path& folder, const label& name);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/read_backbone.ipp> // IWYU pragma: keep
#endif
