#pragma once

#include <cstddef>
#include <utility>

#include <support/toy_model.hpp>
#include <pulse/model/model.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/control.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/locked.hpp>
#include <pulse/nn/norm.hpp>
#include <pulse/nn/resnet.hpp>

namespace pulse::test {

/// A toy model whose first `Forward` layers are forward-only; of the layers after them, every third is locked.
template <toy_spec Spec, std::size_t Forward, class Layers, class Edges>
struct locked_parts;
template <toy_spec Spec, std::size_t Forward, std::size_t... I, std::size_t... E>
struct locked_parts<Spec, Forward, std::index_sequence<I...>, std::index_sequence<E...>> {
    static constexpr auto edges = toy_edges<Spec>();
    template <std::size_t L>
    using plain = toy_layer<Spec, L, (Spec.skip_from[L] >= 0), Spec.reads[L]>;
    template <std::size_t L>
    static constexpr auto pick() {
        if constexpr (L < Forward) {
            return std::type_identity<nn::forward_only<plain<L>>>{};
        } else if constexpr (L % 3 == 0) {
            return std::type_identity<nn::locked<plain<L>>>{};
        } else {
            return std::type_identity<plain<L>>{};
        }
    }
    using type = model<"locked", layers<typename decltype(pick<I>())::type...>,
                       skips<pulse::skip<label{"l"} + static_cast<unsigned>(edges[E].first),
                                         label{"l"} + static_cast<unsigned>(edges[E].second)>...>,
                       std::conditional_t<Spec.conditioned, toy_conditioning, unconditioned>>;
};
template <unsigned Seed, int Layers, wiring Kind, bool Conditioned, std::size_t Forward>
struct locked_toy
    : locked_parts<draw_toy(Seed, Layers, Kind, Conditioned), Forward,
                   std::make_index_sequence<static_cast<std::size_t>(Layers)>,
                   std::make_index_sequence<toy_edges<draw_toy(Seed, Layers, Kind, Conditioned)>().size()>>::type {};

/// A two-resolution UNet under a ControlNet: everything is locked except the copy of its encoder, which also sees a
/// one-channel hint, and the controls.
namespace control_parts {
template <label Name, nn::conv Copy, nn::conv Locked>
using enter =
    nn::beside<Name, nn::block<label{"copy."} + Name.view(), Copy>, nn::block<label{"unet."} + Name.view(), Locked>>;
template <label Name, auto Math>
using both =
    nn::beside<Name, nn::block<label{"copy."} + Name.view(), Math>, nn::block<label{"unet."} + Name.view(), Math>>;
template <label Name, auto Math>
using decoder = nn::controlled<label{"control."} + Name.view(), nn::block<Name, Math>>;
constexpr nn::conv conv_in(int channels) {
    return {.in_channels = channels, .out_channels = 4, .height = 6, .width = 6};
}
constexpr nn::resnet residual(int in, int skip, int out, int size) {
    return {.in_channels = in, .skip_channels = skip, .out_channels = out, .height = size, .width = size, .groups = 2};
}
} // namespace control_parts

struct control_unet
    : model<"control_unet",
            layers<control_parts::enter<"conv_in", control_parts::conv_in(2), control_parts::conv_in(1)>,
                   control_parts::both<"down0", control_parts::residual(4, 0, 4, 6)>,
                   control_parts::both<"down", nn::downsample{.channels = 4, .height = 6, .width = 6}>,
                   control_parts::both<"down1", control_parts::residual(4, 0, 8, 3)>,
                   control_parts::both<"mid", control_parts::residual(8, 0, 8, 3)>,
                   nn::join_control<"control.mid", shape<8, 3, 3>>,
                   control_parts::decoder<"up0", control_parts::residual(8, 8, 8, 3)>,
                   control_parts::decoder<"up1", control_parts::residual(8, 4, 4, 3)>,
                   nn::locked<nn::block<"up", nn::upsample{.channels = 4, .height = 3, .width = 3}>>,
                   control_parts::decoder<"up2", control_parts::residual(4, 4, 4, 6)>,
                   control_parts::decoder<"up3", control_parts::residual(4, 4, 4, 6)>,
                   nn::locked<nn::block<
                       "conv_out",
                       nn::norm_conv{.in_channels = 4, .out_channels = 1, .height = 6, .width = 6, .groups = 2}>>>,
            skips<pulse::skip<"down1", "up0">, pulse::skip<"down", "up1">, pulse::skip<"down0", "up2">,
                  pulse::skip<"conv_in", "up3">>> {};

/// A one-resolution UNet with a forward-only encoder and a trained decoder.
struct encoder_locked_unet : model<"encoder_locked_unet",
                                   layers<nn::forward_only<nn::block<"conv_in", control_parts::conv_in(1)>>,
                                          nn::forward_only<nn::block<"down", control_parts::residual(4, 0, 4, 6)>>,
                                          nn::block<"mid", control_parts::residual(4, 0, 4, 6)>,
                                          nn::locked<nn::block<"up0", control_parts::residual(4, 4, 4, 6)>>,
                                          nn::block<"up1", control_parts::residual(4, 4, 4, 6)>>,
                                   skips<pulse::skip<"down", "up0">, pulse::skip<"conv_in", "up1">>> {};

} // namespace pulse::test
