#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <pulse/core/label.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/model.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/control.hpp>
#include <pulse/nn/hint.hpp>
#include <pulse/nn/locked.hpp>
#include <pulse/nn/unet.hpp>

namespace pulse {

namespace detail {

template <unet_config C>
struct controlnet_parts {
    using unet = unet_parts<C>;
    static constexpr auto& layout = unet::layout;
    /// Number of layers of the encoder and the middle: those before the first that reads a skip.
    static constexpr std::size_t encoder = [] {
        std::size_t count = 0;
        while (layout.layers[count].skip_from < 0) { ++count; }
        return count;
    }();

    /// Name of the control convolution for the skip of a decoder layer; numbers follow the encoder's order.
    [[nodiscard]] static constexpr label control_of(std::size_t layer) noexcept {
        unsigned at = static_cast<unsigned>(layout.skips.size());
        for (const auto& edge : layout.skips) {
            --at;
            if (edge[1] == static_cast<int>(layer)) { break; }
        }
        return label{"controlnet_down_blocks."} + at;
    }

    /// Names the type of layer I by its return type; never called.
    template <std::size_t I>
    [[nodiscard]] static constexpr auto layer_type() {
        if constexpr (I == encoder) {
            using joined = typename unet::template layer_at<encoder - 1>::output;
            return std::type_identity<nn::join_control<"controlnet_mid_block", joined>>{};
        } else {
            constexpr std::size_t at = I < encoder ? I : I - 1;
            using plain = typename unet::template layer_at<at>;
            if constexpr (I == 0) {
                constexpr nn::hinted_conv first{math_of(unet_part_is<unet_part::conv_in>{}, C, unet::layer(0))};
                using hinted = nn::block<plain::name, first>;
                using hint = typename nn::shape_of<first.step(0).input()>::type;
                return std::type_identity<nn::enter_control<plain::name, hinted, plain, hint>>{};
            } else if constexpr (I < encoder) {
                return std::type_identity<nn::beside<plain::name, plain, plain>>{};
            } else if constexpr (concatenates<plain>) {
                return std::type_identity<nn::controlled<control_of(at), plain>>{};
            } else {
                return std::type_identity<nn::locked<nn::of_locked<plain>>>{};
            }
        }
    }

    template <std::size_t I>
    using layer_at = typename decltype(layer_type<I>())::type;

    template <std::size_t E>
    using skip_at = typename unet::template skip_at<E>;
    using conditioning = nn::both_conditionings<typename unet::conditioning>;
    static constexpr label name = label{"controlnet_"} + C.name.view();

    template <std::size_t... L, std::size_t... E>
    static fitting_model<name, layers<layer_at<L>...>, skips<skip_at<E>...>, conditioning> assemble(
        std::index_sequence<L...>, std::index_sequence<E...>);

    using model_type = decltype(assemble(std::make_index_sequence<layout.layers.size() + 1>{},
                                         std::make_index_sequence<layout.skips.size()>{}));
};

template <unet_config C>
[[nodiscard]] consteval bool explain_controlnet() {
    static_assert(C.encoder_hid_dim == 0,
                  "pulse: a ControlNet needs a unet that reads text states as given, without encoder_hid_dim");
    return C.encoder_hid_dim == 0 && explain_unet<C>();
}

} // namespace detail

/// A ControlNet (Zhang et al. 2023) and the locked UNet of config C under it, in one chain: diffusers' ControlNetModel
/// and UNet2DConditionModel, with their parameter names; a layer of the copy and the locked one beside it share theirs.
///
/// The input of a batch is its samples, then its hints, which have 3 channels and 8 times the samples' height and
/// width; the output is the UNet's.
template <unet_config C>
    requires(detail::explain_controlnet<C>())
struct controlnet : detail::controlnet_parts<C>::model_type {
    static constexpr unet_config config = C;
};

} // namespace pulse
