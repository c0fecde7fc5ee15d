#pragma once

#include <optional>
#include <string>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/read_backbone.hpp>
#include <pulse/diffusers/read_networks.hpp>

namespace pulse::diffusers {

/// A C++ header with the type of a backbone: `struct NAME` in the namespace pulse_models, derived from pulse::unet,
/// pulse::hunyuan_dit or pulse::uvit. The backbone's name must be an identifier. With networks, the header also
/// declares them as those of the model's pictures and captions (pulse::frozen::networks_of).
[[nodiscard]] PULSE_INLINE std::string print_header(const backbone_config& backbone,
                                                    const std::optional<network_configs>& networks);

/// The same with the type of a ControlNet over that backbone, derived from pulse::controlnet, which reads the same
/// networks. Throws input_error naming the model if diffusers has no ControlNet over it (control_config_of).
[[nodiscard]] PULSE_INLINE std::string print_control_header(const backbone_config& backbone,
                                                            const std::optional<network_configs>& networks);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/model_header.ipp> // IWYU pragma: keep
#endif
