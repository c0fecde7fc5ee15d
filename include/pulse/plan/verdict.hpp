#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pulse {

/// What is wrong, in words, or nothing.
///
/// Stands for std::optional<std::string>, which nvcc 13 does not take for a literal type. No string is made before it
/// is needed, as clang 14 makes none in constant evaluation.
class verdict {
public:
    constexpr verdict() = default;
    constexpr verdict(std::string why) { why_.push_back(std::move(why)); }
    constexpr verdict(const char* why) { why_.emplace_back(why); }

    [[nodiscard]] constexpr bool has_value() const noexcept { return !why_.empty(); }
    [[nodiscard]] constexpr explicit operator bool() const noexcept { return has_value(); }
    /// The words. Requires that there are some.
    [[nodiscard]] constexpr const std::string& operator*() const noexcept { return why_.front(); }

private:
    std::vector<std::string> why_{};
};

} // namespace pulse
