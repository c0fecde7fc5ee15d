#pragma once

#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/runtime/text_backend.hpp>

namespace pulse::encode {

/// The frame of a forward-only layer on backend B. Facts are what the network's first layers read, statistics and saved
/// are scratch, and nothing has a gradient.
template <text_backend B>
struct frozen_frame : backend_frame<B> {
    const typename B::scalar* shared{}; ///< a parameter of one layer that others read too; null where there is none
};

/// A layer that is never trained: a name and its mathematics, as nn::block, with the forward pass alone.
template <label Name, auto Math>
    requires(nn::sound<Math>::value)
struct frozen_layer : nn::described<Name, Math> {
    static constexpr std::int64_t parameter_elements = nn::layout<Math>.sizes.kept.parameters;

    template <text_backend B>
    static void forward(B& on, const frozen_frame<B>& frame) {
        Math.forward(on, frame, nn::layout<Math>.pieces);
    }
};

} // namespace pulse::encode
