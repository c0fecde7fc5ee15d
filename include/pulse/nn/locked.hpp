#pragma once

#include <array>
#include <cstdint>

#include <pulse/model/layer.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

namespace detail {

/// `elements` rounded up so that what follows is aligned like its start.
[[nodiscard]] constexpr std::int64_t padded(std::int64_t elements) noexcept { return (elements + 63) / 64 * 64; }

/// Whether L is a layer without anything frozen.
template <class L>
inline constexpr bool is_plain = layer<L> && !has_frozen_parameters<L> && !keeps_gradients_back<L>;

/// A layer whose weights have become frozen ones.
template <layer L>
struct frozen_weights : L {
    static_assert(is_plain<L>, "pulse: a layer cannot be locked or made forward-only twice");

    static constexpr std::int64_t deferred_elements = 0;
    static constexpr int part_count = 1;

    [[nodiscard]] static constexpr auto parameters() { return std::array<parameter, 0>{}; }
    [[nodiscard]] static constexpr decltype(auto) frozen_parameters() { return L::parameters(); }
};

/// The frame of L, a layer or conditioning module, with frozen weights and no backward passes: what it saves lies in
/// the workspace.
template <class L>
struct unsaved {
    static constexpr std::int64_t statistics_in = padded(L::workspace_elements);
    /// An accumulator is at most two scalars wide.
    static constexpr std::int64_t saved_in = statistics_in + padded(2 * pulse::statistics_elements<L>());
    static constexpr std::int64_t workspace_elements = saved_in + L::saved_elements;

    template <class T, class A>
    [[nodiscard]] static layer_frame<T, A> frame(layer_frame<T, A> f) noexcept {
        f.parameters = f.frozen_parameters;
        f.saved = f.workspace + f.batch * saved_in;
        f.statistics = reinterpret_cast<A*>(f.workspace + f.batch * statistics_in);
        return f;
    }
};

} // namespace detail

/// L with untrained weights: gradients pass through it, but its weights get none.
///
/// Everything that its forward pass saves is kept, even what only weight gradients would read.
template <layer L>
struct locked : detail::frozen_weights<L> {
    static constexpr std::int64_t deferred_in = detail::padded(L::workspace_elements);
    static constexpr std::int64_t workspace_elements = deferred_in + L::deferred_elements;

    [[nodiscard]] static constexpr double frozen_flops() { return L::forward_flops(); }

    template <backend B>
    static void forward(B& on, const backend_frame<B>& frame) {
        L::forward(on, of_frozen(frame));
    }
    template <backend B>
    static void backward_input(B& on, const backend_frame<B>& frame) {
        L::backward_input(on, of_frozen(frame));
    }
    template <backend B>
    static void backward_weight(B&, const backend_frame<B>&) {}

    /// The frame with the frozen weights as L's parameters and with its deferred pieces in the workspace, where nobody
    /// reads them.
    template <class T, class A>
    [[nodiscard]] static constexpr layer_frame<T, A> of_frozen(layer_frame<T, A> frame) noexcept {
        frame.parameters = frame.frozen_parameters;
        frame.parameter_gradients = nullptr;
        frame.deferred = frame.workspace + frame.batch * deferred_in;
        return frame;
    }
};

/// L without backward passes: neither it nor any layer before it is trained. It saves nothing.
template <layer L>
struct forward_only : detail::frozen_weights<L> {
    static constexpr std::int64_t frozen_input_elements = L::input::elements;
    static constexpr std::int64_t frozen_output_elements = L::output::elements;
    static constexpr std::int64_t saved_elements = 0;
    static constexpr std::int64_t statistics_elements = 0;
    static constexpr std::int64_t workspace_elements = detail::unsaved<L>::workspace_elements;

    [[nodiscard]] static constexpr double forward_only_flops() { return L::forward_flops(); }

    template <backend B>
    static void forward(B& on, const backend_frame<B>& frame) {
        L::forward(on, detail::unsaved<L>::frame(frame));
    }
};

} // namespace pulse::nn
