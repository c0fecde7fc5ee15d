#pragma once

#include <type_traits>

#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/unet.hpp>
#include <pulse/nn/uvit.hpp>

namespace pulse::test {

template <class Config>
[[nodiscard]] constexpr Config with_size(Config config, int size) noexcept {
    config.sample_size = size;
    return config;
}
[[nodiscard]] constexpr uvit_config with_size(uvit_config config, int size) noexcept {
    config.img_size = size;
    return config;
}
/// The same backbone, as a type, with another size.
template <class Model, int Size, class Config = std::remove_cv_t<decltype(Model::config)>>
struct sized;
template <class Model, int Size>
struct sized<Model, Size, unet_config> : unet<with_size(Model::config, Size)> {};
template <class Model, int Size>
struct sized<Model, Size, hunyuan_dit_config> : hunyuan_dit<with_size(Model::config, Size)> {};
template <class Model, int Size>
struct sized<Model, Size, uvit_config> : uvit<with_size(Model::config, Size)> {};

} // namespace pulse::test
