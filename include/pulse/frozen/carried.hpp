#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/runtime/space.hpp>

namespace pulse::frozen {

/// Waits until a backend has finished all its work, on a device too.
template <class Math>
void wait_for(const Math& math) {
    if constexpr (requires { math.synchronize(); }) { math.synchronize(); }
}

/// Copy values between the host and a backend's memory, which may be on a device. Both wait for all the backend's work
/// first: networks, passes and waits for messages share one stream, so nothing else accesses that memory then.
template <class T, class Math>
void put_values(const Math& math, std::span<const T> from, std::byte* to) {
    wait_for(math);
    space_of<Math>::template upload<T>(from, reinterpret_cast<T*>(to));
}
template <class T, class Math>
void get_values(const Math& math, const std::byte* from, std::span<T> to) {
    wait_for(math);
    space_of<Math>::template download<T>(reinterpret_cast<const T*>(from), to);
}

/// A buffer of up to n backend scalars, written and read on the host as floats.
template <class Math>
class carried {
public:
    using scalar = typename Math::scalar;
    using space = space_of<Math>;

    explicit carried(std::size_t n) : there_(n), scalars_(n) {}
    /// Makes room for at least n.
    void reserve(std::size_t n) {
        if (n <= scalars_.size()) { return; }
        *this = carried{0}; // free the old buffers before allocating
        *this = carried{n};
    }

    [[nodiscard]] scalar* there() noexcept { return there_.data(); }
    [[nodiscard]] std::int64_t bytes() const noexcept {
        return static_cast<std::int64_t>(there_.size() * sizeof(scalar));
    }
    /// Waits until the backend has read the previous values: a chain that pauses may still be reading them.
    void put(const Math& math, std::span<const float> values) {
        wait_for(math);
        std::ranges::transform(values, scalars_.begin(), [](float value) { return static_cast<scalar>(value); });
        space::template upload<scalar>(std::span<const scalar>{scalars_}.first(values.size()), there_.data());
    }
    /// Waits for the backend and reads its result.
    void get(const Math& math, std::span<float> values) {
        wait_for(math);
        const std::span<scalar> mine = std::span{scalars_}.first(values.size());
        space::template download<scalar>(there_.data(), mine);
        std::ranges::transform(mine, values.begin(), [](scalar value) { return static_cast<float>(value); });
    }

private:
    typename space::template array<scalar> there_;
    std::vector<scalar> scalars_;
};

} // namespace pulse::frozen
