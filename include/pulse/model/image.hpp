#pragma once

#include <cstdint>

#include <pulse/model/extent.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/model.hpp>

namespace pulse {

namespace detail {

template <class L>
struct image_read_by {
    using type = typename L::input;
};
template <class L>
    requires requires { typename L::image; }
struct image_read_by<L> {
    using type = typename L::image;
};

} // namespace detail

/// The image of a sample that M reads: its input, or `image` of its first layer if that also reads a hint.
template <any_model M>
using image_of = typename detail::image_read_by<typename M::template layer_at<0>>::type;

/// M also reads a hint of each sample, as a ControlNet does. Its shape is `hint` of the first layer; the hints follow
/// the images of the whole batch.
template <class M>
concept reads_hint = any_model<M> && requires {
    typename M::template layer_at<0>::hint;
};

/// Elements of a sample's hint; 0 if M reads none.
template <any_model M>
[[nodiscard]] consteval std::int64_t hint_elements() {
    return M::template layer_at<0>::input::elements - image_of<M>::elements;
}

/// Height and width of the hint that M reads; a default extent if M reads none.
template <any_model M>
[[nodiscard]] consteval extent hint_extent() {
    if constexpr (reads_hint<M>) {
        using hint = typename M::template layer_at<0>::hint;
        static_assert(hint::rank == 3 && hint::dims[0] == 3,
                      "pulse: a hint must be a picture with three colour channels");
        return {hint::dims[1], hint::dims[2]};
    } else {
        return {};
    }
}

} // namespace pulse
