#pragma once

#include <filesystem>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/unet_config.hpp>
#include <pulse/nn/uvit.hpp>

namespace pulse::diffusers {

/// The sample_size in a backbone's config.json: height and width of what it was trained on; 0 x 0 if it is null or
/// absent. Throws input_error naming the file and the key.
[[nodiscard]] PULSE_INLINE extent read_sample_size(const std::filesystem::path& folder);

/// The config.json of a UNet: diffusers' UNet2DConditionModel where it reads text, else UNet2DModel.
///
/// Throws input_error naming the model when neither class has such a network.
[[nodiscard]] PULSE_INLINE component_config config_of(const unet_config& c);

/// The config.json of a ControlNet over a UNet, as diffusers' ControlNetModel.from_unet makes it.
///
/// Throws input_error naming the model when that class has no such network.
[[nodiscard]] PULSE_INLINE component_config control_config_of(const unet_config& c);

/// The config.json of a Hunyuan-DiT: diffusers' HunyuanDiT2DModel.
[[nodiscard]] PULSE_INLINE component_config config_of(const hunyuan_dit_config& c);

/// The config.json of a U-ViT. diffusers' UVit2DModel is another network (of discrete tokens), so the class is UViT of
/// baofff/U-ViT and the keys are its arguments; diffusers itself cannot read this component.
[[nodiscard]] PULSE_INLINE component_config config_of(const uvit_config& c);

/// The folder of a backbone in a pipeline.
[[nodiscard]] constexpr const char* backbone_folder(const unet_config&) noexcept { return "unet"; }
template <class Config>
[[nodiscard]] constexpr const char* backbone_folder(const Config&) noexcept {
    return "transformer";
}

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/backbone_config.ipp> // IWYU pragma: keep
#endif
