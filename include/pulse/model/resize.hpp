#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/image.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/rules.hpp>

namespace pulse {

/// L reports its costs at heights and widths other than its type's, and runs at those of its frame. If they must be
/// multiples of something the shapes do not show, such as the side of a patch, L::image_step says so.
template <class L>
concept resizable_layer =
    layer<L> && !has_frozen_parameters<L> && !keeps_gradients_back<L> && requires(const resizing& by) {
    { L::node_at(by) } -> std::same_as<layer_node>;
};

namespace detail {

template <any_model M>
[[nodiscard]] consteval bool all_layers_resize() {
    return []<std::size_t... I>(std::index_sequence<I...>) {
        return (resizable_layer<typename M::template layer_at<I>> && ...);
    }
    (std::make_index_sequence<M::layer_count>{});
}

/// Largest height or width: both, and the pixels of an image, are counted in `int`.
inline constexpr int largest_extent = 16384;

/// The nearest allowed sizes below and above `size`.
[[nodiscard]] inline std::string nearest_sizes(int size, int step, int most) {
    const int below = std::clamp(size, 0, most) / step * step;
    const int above = below + step;
    if (below == size || above > most) { return std::to_string(below); }
    return below == 0 ? std::to_string(above) : std::to_string(below) + " or " + std::to_string(above);
}

[[nodiscard]] constexpr bool is_step(int size, int step, int most) noexcept {
    return size > 0 && size <= most && size % step == 0;
}

[[nodiscard]] inline std::string text_of(const extent& e) {
    return std::to_string(e.height) + " x " + std::to_string(e.width);
}

} // namespace detail

/// Every layer of M is resizable: M runs at any extent that all its downsamplings divide.
template <class M>
concept resizable_model = any_model<M> && detail::all_layers_resize<M>();

/// Height and width of M's input in its type; a default extent if the input is not an image.
template <any_model M>
[[nodiscard]] constexpr extent extent_of() noexcept {
    using image = image_of<M>;
    if constexpr (image::rank == 3) {
        return {image::dims[1], image::dims[2]};
    } else {
        return {};
    }
}

/// M's heights are multiples of steps.height and its widths of steps.width: then every downsampling is exact.
template <resizable_model M>
[[nodiscard]] consteval extent steps_of() noexcept {
    constexpr extent type = extent_of<M>();
    extent steps{1, 1};
    for (const layer_facts& l : M::layer_list::facts()) {
        for (const shape_facts* image : {&l.input, &l.output}) {
            if (image->rank != 3) { continue; }
            steps.height = std::lcm(steps.height, type.height / std::gcd(type.height, image->dims[1]));
            steps.width = std::lcm(steps.width, type.width / std::gcd(type.width, image->dims[2]));
        }
    }
    const auto add = [&]<class L>(const L*) {
        if constexpr (requires { L::image_step; }) {
            steps = {std::lcm(steps.height, L::image_step), std::lcm(steps.width, L::image_step)};
        }
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        (add(static_cast<const typename M::template layer_at<I>*>(nullptr)), ...);
    }
    (std::make_index_sequence<M::layer_count>{});
    return steps;
}

/// Throws input_error, naming the nearest valid sizes, unless `to` is a multiple of a model's steps. Each step counts
/// as `unit`: pictures have more pixels than their latents.
constexpr void require_steps(const label& model, const extent& steps_of_model, const extent& to, int unit = 1) {
    const extent steps{unit * steps_of_model.height, unit * steps_of_model.width};
    const int most = detail::largest_extent * unit;
    if (detail::is_step(to.height, steps.height, most) && detail::is_step(to.width, steps.width, most)) { return; }
    throw input_error{"model " + model.str() + " cannot read " + detail::text_of(to) +
                      ": its height must be a multiple of " + std::to_string(steps.height) + " (" +
                      detail::nearest_sizes(to.height, steps.height, most) + "), its width of " +
                      std::to_string(steps.width) + " (" + detail::nearest_sizes(to.width, steps.width, most) +
                      "), up to " + std::to_string(most)};
}
/// The same for a model that has only one extent.
constexpr void require_only(const label& model, const extent& only, const extent& to, int unit = 1) {
    if (to == extent{} || to == extent{unit * only.height, unit * only.width}) { return; }
    throw input_error{"model " + model.str() + " cannot read " + detail::text_of(to) + ": it only reads " +
                      detail::text_of({unit * only.height, unit * only.width})};
}
template <any_model M>
constexpr void require_steps(const extent& to, int unit = 1) {
    if constexpr (resizable_model<M>) {
        require_steps(M::name, steps_of<M>(), to, unit);
    } else {
        require_only(M::name, extent_of<M>(), to, unit);
    }
}

/// Whether M has learned vectors for the positions of its type's extent. Other extents resample them, which no
/// published model was trained with.
template <any_model M>
[[nodiscard]] consteval bool learns_positions() {
    return []<std::size_t... I>(std::index_sequence<I...>) {
        return ([] {
            if constexpr (requires { M::template layer_at<I>::learns_positions; }) {
                return M::template layer_at<I>::learns_positions;
            }
            return false;
        }() || ...);
    }
    (std::make_index_sequence<M::layer_count>{});
}

/// Throws input_error if M learns positions and `to` is not the extent of M's type (times `unit`); `word` is the user's
/// name for the option that resamples positions.
template <any_model M>
constexpr void require_own_positions(const extent& to, std::string_view word, int unit = 1) {
    constexpr extent type = extent_of<M>();
    const extent own{unit * type.height, unit * type.width};
    if (!learns_positions<M>() || to == extent{} || to == own) { return; }
    throw input_error{"model " + M::name.str() + " has learned the positions of " + detail::text_of(own) + ", not of " +
                      detail::text_of(to) + "; " + std::string{word} + " resamples them"};
}

/// The resizing that brings M to an extent; a default extent means that of its type. M's learned positions are
/// resampled: callers that require consent use require_own_positions first. Throws input_error as require_steps does.
template <any_model M>
[[nodiscard]] constexpr resizing resize(const extent& to) {
    constexpr extent type = extent_of<M>();
    if (to == extent{} || to == type) { return {}; }
    require_steps<M>(to);
    return {type, to};
}

} // namespace pulse
