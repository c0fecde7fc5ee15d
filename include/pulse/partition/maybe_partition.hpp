#pragma once

#include <utility>

#include <pulse/partition/partition.hpp>

namespace pulse {

/// A partition, or none. Replaces std::optional, which nvcc 13 does not accept in a constexpr function if it holds a
/// vector.
class maybe_partition {
public:
    constexpr maybe_partition() = default;
    constexpr maybe_partition(partition cut) : there_(true), cut_(std::move(cut)) {}

    [[nodiscard]] constexpr bool has_value() const noexcept { return there_; }
    [[nodiscard]] constexpr explicit operator bool() const noexcept { return there_; }
    /// The partition. Requires has_value().
    [[nodiscard]] constexpr const partition& operator*() const& noexcept { return cut_; }
    [[nodiscard]] constexpr partition&& operator*() && noexcept { return std::move(cut_); }
    [[nodiscard]] constexpr const partition* operator->() const noexcept { return &cut_; }

private:
    bool there_{false};
    partition cut_{};
};

} // namespace pulse
