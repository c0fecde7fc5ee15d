#pragma once

#include <optional>
#include <string>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/read_backbone.hpp>
#include <pulse/diffusers/read_networks.hpp>

namespace pulse::diffusers {

/// A C++ header with the type of a backbone, whose name must be an identifier: `struct NAME` in the namespace
/// pulse_models, which derives from pulse::unet, pulse::hunyuan_dit or pulse::uvit. With networks, it also says that
/// they are those of the model's pictures and captions (pulse::frozen::networks_of).
[[nodiscard]] PULSE_INLINE std::string print_header(const backbone_config& backbone,
                                                    const std::optional<network_configs>& networks);

/// The same with the type of a ControlNet over that backbone, which derives from pulse::controlnet and reads the same
/// networks. Throws input_error naming the model where diffusers has none over it (control_config_of).
[[nodiscard]] PULSE_INLINE std::string print_control_header(const backbone_config& backbone,
                                                            const std::optional<network_configs>& networks);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/model_header.ipp> // IWYU pragma: keep
#endif
