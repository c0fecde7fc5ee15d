#pragma once

#include <concepts>

#include <pulse/runtime/any_transport.hpp>

namespace pulse {

/// A backend for a rank: on the rank's stream, or with `threads` if it takes a number of threads.
template <class B>
[[nodiscard]] B backend_on([[maybe_unused]] const any_transport& of_rank, [[maybe_unused]] int threads) {
    if constexpr (requires { B::on(of_rank); }) {
        return B::on(of_rank);
    } else if constexpr (std::constructible_from<B, int>) {
        return B(threads);
    } else {
        return B{};
    }
}

} // namespace pulse
