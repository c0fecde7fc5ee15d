#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <pulse/model/layer.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse {

/// What the executor needs of one layer, with its type gone: which stage runs it is known only from the plan.
template <backend B>
struct layer_entry {
    using pass_function = void (*)(B&, const backend_frame<B>&);

    pass_function forward{};
    /// This and the next are null where the layer runs forward only.
    pass_function backward_input{};
    pass_function backward_weight{};
    bool writes_gradients{};
};

namespace detail {

template <class L, backend B>
[[nodiscard]] consteval layer_entry<B> entry_of() {
    layer_entry<B> entry{&L::template forward<B>, nullptr, nullptr, writes_gradients<L>};
    if constexpr (!is_forward_only<L>()) {
        entry.backward_input = &L::template backward_input<B>;
        entry.backward_weight = &L::template backward_weight<B>;
    }
    return entry;
}

} // namespace detail

/// The passes of every layer of model M on backend B.
template <class M, backend B>
[[nodiscard]] consteval auto layer_table() {
    if constexpr (M::is_conditioned) {
        static_assert(conditions_on<typename M::conditioning, B>,
                      "pulse: a conditioning module needs static forward and backward_weight over the backend");
    }
    return []<std::size_t... I>(std::index_sequence<I...>) {
        static_assert((runs_on<typename M::template layer_at<I>, B> && ...),
                      "pulse: a layer needs static forward, backward_input and backward_weight over the backend");
        static_assert(!((I != 0 && reads_timesteps<typename M::template layer_at<I>>) || ...),
                      "pulse: only the first layer of a model reads the timesteps");
        static_assert(!((I != 0 && reads_facts<typename M::template layer_at<I>>) || ...),
                      "pulse: only the first layer of a model reads facts of the samples");
        return std::array<layer_entry<B>, sizeof...(I)>{detail::entry_of<typename M::template layer_at<I>, B>()...};
    }
    (std::make_index_sequence<M::layer_count>{});
}

} // namespace pulse
