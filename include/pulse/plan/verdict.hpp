#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pulse {

/// What is wrong, in words, or nothing.
///
/// Replaces std::optional<std::string>, which nvcc 13 does not accept as a literal type. The string is made only when
/// there is one, because clang 14 cannot make strings in constant evaluation.
class verdict {
public:
    constexpr verdict() = default;
    constexpr verdict(std::string why) { why_.push_back(std::move(why)); }
    constexpr verdict(const char* why) { why_.emplace_back(why); }

    [[nodiscard]] constexpr bool has_value() const noexcept { return !why_.empty(); }
    [[nodiscard]] constexpr explicit operator bool() const noexcept { return has_value(); }
    /// The description. Requires has_value().
    [[nodiscard]] constexpr const std::string& operator*() const noexcept { return why_.front(); }

private:
    std::vector<std::string> why_{};
};

} // namespace pulse
