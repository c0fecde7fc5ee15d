#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/runtime/space.hpp>

namespace pulse::frozen {

/// Returns when a backend has done what it was given, on a device too.
template <class Math>
void wait_for(const Math& math) {
    if constexpr (requires { math.synchronize(); }) { math.synchronize(); }
}

/// Values of the host become those in memory of a backend, which may be on a device, and the other way round. All that
/// the backend was given is waited for first: networks, passes and what waits for messages are in the order of one
/// stream, so that nothing else reads or writes there then.
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

/// Numbers of a backend, at most so many, which come from the host and go there as floats.
template <class Math>
class carried {
public:
    using scalar = typename Math::scalar;
    using space = space_of<Math>;

    explicit carried(std::size_t n) : there_(n), scalars_(n) {}
    /// Room for at least so many.
    void reserve(std::size_t n) {
        if (n <= scalars_.size()) { return; }
        *this = carried{0}; // first, so that there is no room for both
        *this = carried{n};
    }

    [[nodiscard]] scalar* there() noexcept { return there_.data(); }
    [[nodiscard]] std::int64_t bytes() const noexcept {
        return static_cast<std::int64_t>(there_.size() * sizeof(scalar));
    }
    /// Waits until the backend has read what was there: a chain that pauses has only begun to.
    void put(const Math& math, std::span<const float> values) {
        wait_for(math);
        std::ranges::transform(values, scalars_.begin(), [](float value) { return static_cast<scalar>(value); });
        space::template upload<scalar>(std::span<const scalar>{scalars_}.first(values.size()), there_.data());
    }
    /// What the backend has made by now.
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
