#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <pulse/model/layer.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse {

/// A layer's passes with its type erased, because only the plan determines which stage runs it.
template <backend B>
struct layer_entry {
    layer_pass<B> forward{};
    /// Null, like the next one, if the layer runs forward only.
    layer_pass<B> backward_input{};
    layer_pass<B> backward_weight{};
    bool writes_gradients{};
};

namespace detail {

/// Whether L runs on B; if not, compilation stops with a sentence for each missing pass.
template <class L, backend B>
[[nodiscard]] consteval bool explain_passes() {
    static_assert(runs_forward_on<L, B>, "pulse: a layer (L) needs 'template <pulse::backend B> static void "
                                         "forward(B&, const pulse::backend_frame<B>&)'");
    static_assert(runs_backward_input_on<L, B>, "pulse: a layer (L) needs 'template <pulse::backend B> static void "
                                                "backward_input(B&, const pulse::backend_frame<B>&)'");
    static_assert(runs_backward_weight_on<L, B>, "pulse: a layer (L) needs 'template <pulse::backend B> static void "
                                                 "backward_weight(B&, const pulse::backend_frame<B>&)'");
    return runs_on<L, B>;
}

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
        static_assert(
            conditions_on<typename M::conditioning, B>,
            "pulse: a conditioning module needs static functions forward and backward_weight that take any backend");
    }
    return []<std::size_t... I>(std::index_sequence<I...>) {
        static_assert(!((I != 0 && reads_timesteps<typename M::template layer_at<I>>) || ...),
                      "pulse: only the first layer of a model may read the timesteps");
        static_assert(!((I != 0 && reads_facts<typename M::template layer_at<I>>) || ...),
                      "pulse: only the first layer of a model may read facts of the samples");
        std::array<layer_entry<B>, sizeof...(I)> table{};
        if constexpr ((detail::explain_passes<typename M::template layer_at<I>, B>() && ...)) {
            table = {detail::entry_of<typename M::template layer_at<I>, B>()...};
        }
        return table;
    }
    (std::make_index_sequence<M::layer_count>{});
}

} // namespace pulse
