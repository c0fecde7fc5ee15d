#pragma once

#include <algorithm>
#include <vector>

namespace pulse::detail {

/// A set as a sorted vector: std::set is no part of constant evaluation.
template <class T>
class sorted_set {
public:
    /// Whether `value` was not there before.
    constexpr bool insert(const T& value) {
        const auto at = std::lower_bound(all_.begin(), all_.end(), value);
        if (at != all_.end() && *at == value) { return false; }
        all_.insert(at, value);
        return true;
    }
    /// Whether `value` was there.
    constexpr bool erase(const T& value) {
        const auto at = std::lower_bound(all_.begin(), all_.end(), value);
        if (at == all_.end() || !(*at == value)) { return false; }
        all_.erase(at);
        return true;
    }
    [[nodiscard]] constexpr bool contains(const T& value) const {
        return std::binary_search(all_.begin(), all_.end(), value);
    }
    [[nodiscard]] constexpr bool empty() const noexcept { return all_.empty(); }
    [[nodiscard]] constexpr const T& front() const noexcept { return all_.front(); }

private:
    std::vector<T> all_{};
};

} // namespace pulse::detail
