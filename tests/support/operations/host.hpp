#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <pulse/reference/backend.hpp>

#include <support/operations/trial.hpp>

namespace pulse::test {

/// A host tensor that starts `offset` elements after an aligned address, between margins.
template <class T>
class host_tensor {
public:
    explicit host_tensor(const doubles& values, int offset = 0) :
        offset_{static_cast<std::size_t>(offset)}, all_(values.size() + offset_ + margin, mark) {
        std::transform(values.begin(), values.end(), all_.begin() + offset, [](double v) { return static_cast<T>(v); });
    }
    /// Null for an empty tensor: how operations take an absent one.
    [[nodiscard]] T* data() { return all_.size() == margin + offset_ ? nullptr : all_.data() + offset_; }
    [[nodiscard]] doubles read() const {
        return {all_.begin() + static_cast<std::ptrdiff_t>(offset_), all_.end() - margin};
    }
    [[nodiscard]] bool intact() const {
        const auto marked = [](T v) { return std::isnan(v); };
        return std::all_of(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(offset_), marked) &&
               std::all_of(all_.end() - margin, all_.end(), marked);
    }

private:
    static constexpr std::ptrdiff_t margin = 8;
    static constexpr T mark = std::numeric_limits<T>::quiet_NaN();
    std::size_t offset_;
    std::vector<T> all_;
};

/// A backend of the host.
template <class B>
struct host_side {
    using scalar = typename B::scalar;
    using accumulator = typename B::accumulator;
    template <class Value>
    using tensor = host_tensor<Value>;
    static constexpr bool approximates = false;
    static constexpr bool tensor_float = false;

    B on{};
    reference::backend<double> oracle{};

    template <class Value>
    [[nodiscard]] doubles read(const host_tensor<Value>& t) const {
        return t.read();
    }
    template <class Value>
    [[nodiscard]] bool intact(const host_tensor<Value>& t) const {
        return t.intact();
    }
};

/// Runs law(trial) on B and, if B takes a number of threads, on two of them, too.
template <class B, class Law>
void hold_on_host(unsigned seed, const Law& law) {
    operation_trial<host_side<B>> trial{seed};
    law(trial);
    if constexpr (std::is_constructible_v<B, int>) {
        operation_trial<host_side<B>> two{seed + 1, B{2}};
        law(two);
    }
}

} // namespace pulse::test
