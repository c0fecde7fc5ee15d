#pragma once

#include <array>
#include <concepts>
#include <cstddef>

#include <pulse/core/label.hpp>

namespace pulse {

struct skip_tag {};

/// A skip edge: the output of layer `From` is what layer `To` concatenates to its input.
template <label From, label To>
struct skip : skip_tag {
    static constexpr label from = From;
    static constexpr label to = To;
    static constexpr bool is_residual = false;
};

/// A residual edge: the output of layer `From` is what layer `To` adds to its output, the identity path around the
/// layers between them. Unlike a skip it may cross from one device to another; a cut between its ends is paid for.
template <label From, label To>
struct residual : skip_tag {
    static constexpr label from = From;
    static constexpr label to = To;
    static constexpr bool is_residual = true;
};

/// A type that is a pulse::skip or a pulse::residual.
template <class T>
concept skip_edge = std::derived_from<T, skip_tag>;

/// The two ends of an edge, as a value.
struct skip_ends {
    label from{};
    label to{};
    bool residual{false};

    [[nodiscard]] constexpr bool operator==(const skip_ends&) const = default;
};

/// The skip and residual edges of a model, in the order in which plans count them.
template <skip_edge... S>
struct skips {
    static constexpr std::size_t count = sizeof...(S);
    static constexpr std::array<skip_ends, sizeof...(S)> ends{skip_ends{S::from, S::to, S::is_residual}...};
};

} // namespace pulse
