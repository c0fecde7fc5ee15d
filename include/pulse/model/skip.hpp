#pragma once

#include <array>
#include <concepts>
#include <cstddef>

#include <pulse/core/label.hpp>

namespace pulse {

struct skip_tag {};

/// A skip edge: layer `To` reads the output of layer `From` besides its input.
template <label From, label To>
struct skip : skip_tag {
    static constexpr label from = From;
    static constexpr label to = To;
};

/// A type that is a pulse::skip.
template <class T>
concept skip_edge = std::derived_from<T, skip_tag>;

/// The two ends of an edge, as a value.
struct skip_ends {
    label from{};
    label to{};

    [[nodiscard]] constexpr bool operator==(const skip_ends&) const = default;
};

/// The skip edges of a model, in the order in which plans number them.
template <skip_edge... S>
struct skips {
    static constexpr std::size_t count = sizeof...(S);
    static constexpr std::array<skip_ends, sizeof...(S)> ends{skip_ends{S::from, S::to}...};
};

} // namespace pulse
