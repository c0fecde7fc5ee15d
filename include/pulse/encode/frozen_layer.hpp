#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/runtime/text_backend.hpp>

namespace pulse::encode {

/// The frame of a forward-only layer on backend B. Facts are the network's input, statistics and saved are scratch, and
/// nothing has a gradient.
template <text_backend B>
struct frozen_frame : backend_frame<B> {
    const typename B::scalar* shared{}; ///< a parameter of one layer that others read, too; null: none
};

/// Mathematics whose forward pass runs in steps, each with its share of the weights.
template <class Math>
concept runs_in_steps = requires {
    Math::steps;
};

/// A layer that is never trained: a name and its mathematics, like nn::block, with only the forward pass.
template <label Name, auto Math>
    requires(nn::explain_mathematics<Math, false>())
struct frozen_layer : nn::described<Name, Math> {
    static constexpr std::int64_t parameter_elements = nn::layout<Math>.sizes.kept.parameters;

    /// Runs the layer; `frame_of(t)` is the frame of text (or batch of texts) t.
    ///
    /// All texts take a step before any takes the next, so that its weights are still in cache, and each takes it
    /// alone, as a backend's products may depend on the number of rows: no text changes the bits of another.
    template <text_backend B, class Frames>
    static void forward(B& on, std::size_t texts, const Frames& frame_of) {
        constexpr auto& pieces = nn::layout<Math>.pieces;
        if constexpr (runs_in_steps<std::remove_cvref_t<decltype(Math)>>) {
            for (int step = 0; step != Math.steps; ++step) {
                for (std::size_t t = 0; t != texts; ++t) { Math.forward(on, frame_of(t), pieces, step); }
            }
        } else {
            for (std::size_t t = 0; t != texts; ++t) { Math.forward(on, frame_of(t), pieces); }
        }
    }
};

} // namespace pulse::encode
