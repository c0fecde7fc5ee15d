#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <pulse/launch/deadline.hpp>

namespace pulse::launch {

/// A key of those that were asked for, and its value.
struct found_value {
    std::size_t index{};
    std::string value{};
};

/// Where ranks leave small values for each other before they have anything better. S satisfies store if, for keys that
/// are not empty and values of any bytes up to 16 MiB:
/// 1. set(key, value) gives a key its value once and for all and returns true; where the key has a value, that value
///    stays and set returns false;
/// 2. get_first(keys, timeout) waits until one of the keys has a value and gives the first of them that has; none after
///    the timeout; with a timeout of 0 it only looks;
/// 3. both throw launch_error when the store itself, or a rank that takes part, is lost.
template <class S>
concept store = requires(S& s, std::string_view key, std::span<const std::string> keys, deadline::duration timeout) {
    { s.set(key, key) } -> std::same_as<bool>;
    { s.get_first(keys, timeout) } -> std::same_as<std::optional<found_value>>;
};

/// The value of one key, as soon as it has one; none after the timeout.
template <store S>
[[nodiscard]] std::optional<std::string> get(S& from, const std::string& key, deadline::duration timeout) {
    std::optional<found_value> found = from.get_first(std::span{&key, 1}, timeout);
    if (!found) { return std::nullopt; }
    return std::move(found->value);
}

} // namespace pulse::launch
