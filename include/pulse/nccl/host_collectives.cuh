#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace pulse::nccl {

/// Collectives of host values, used before and beside NCCL: launch::control_plane, or any transport between host ranks.
template <class C>
concept host_collectives = requires(C& c, std::span<double> values, std::vector<std::byte>& bytes,
                                    std::string_view what) {
    { c.rank() } -> std::convertible_to<int>;
    { c.size() } -> std::convertible_to<int>;
    c.sum(values);
    { c.gather(std::span<const std::byte>{}) } -> std::same_as<std::vector<std::vector<std::byte>>>;
    c.broadcast(bytes);
    c.fail(what);
};

} // namespace pulse::nccl
