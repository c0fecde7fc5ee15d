#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pulse {

/// A per-sample shape known when the model is compiled: (channels, height, width) or (features). The batch is dynamic.
template <int... Dims>
struct shape {
    static_assert(((Dims > 0) && ...), "pulse: every dimension of a shape must be positive");
    static constexpr std::size_t rank = sizeof...(Dims);
    static constexpr std::array<int, sizeof...(Dims)> dims{Dims...};
    static constexpr std::int64_t elements = (std::int64_t{1} * ... * Dims);
};

template <class T>
inline constexpr bool is_shape = false;
template <int... Dims>
inline constexpr bool is_shape<shape<Dims...>> = true;

/// A type that is a pulse::shape.
template <class T>
concept static_shape = is_shape<T>;

} // namespace pulse
