#pragma once

#include <pulse/nn/unet.hpp>

namespace pulse::test {

[[nodiscard]] constexpr unet_config with_size(unet_config config, int size) noexcept {
    config.sample_size = size;
    return config;
}
/// The same backbone as a type of another size.
template <class Model, int Size>
struct sized : unet<with_size(Model::config, Size)> {};

} // namespace pulse::test
