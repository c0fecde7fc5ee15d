#pragma once

#include <cstdint>

namespace pulse {

/// What an optimizer keeps the moments of the gradient in.
enum class moment_form : std::uint8_t {
    float32,
    /// 8 bits of each value and a float of every moment_block neighbours (Dettmers et al. 2022).
    dynamic8,
    /// None of the first; of the second the means of the rows and columns of each tensor, and all of a vector's
    /// (Adafactor, Shazeer and Stern 2018).
    factored,
};

/// What keeps the part of a weight that is too small for the value that passes read, where that is no float.
enum class weight_form : std::uint8_t {
    float32,    ///< a master weight
    kahan,      ///< what rounding left over, in the type of the value (Zamirai et al. 2020)
    stochastic, ///< nothing: the value is rounded up or down by chance, right in the mean
};

/// Moments in 8 bits have one scale in common that are so many neighbours of a replica's share of a layer, as they lie
/// in memory. A checkpoint has their values: a run that goes on with other shares, or on a backend that has weights in
/// another order, gives them other codes.
inline constexpr int moment_block = 256;

/// Scales of so many neighbours.
[[nodiscard]] constexpr std::int64_t moment_blocks(std::int64_t elements) noexcept {
    return (elements + moment_block - 1) / moment_block;
}

/// What an optimizer keeps of each weight.
struct optimizer_form {
    moment_form moments{};
    weight_form weights{};
    bool averages{true}; ///< a moving average of the weights

    /// Whether a weight's new value depends on where it stands.
    [[nodiscard]] constexpr bool has_places() const noexcept {
        return moments == moment_form::dynamic8 || weights == weight_form::stochastic;
    }
    [[nodiscard]] constexpr bool is_factored() const noexcept { return moments == moment_form::factored; }
    [[nodiscard]] constexpr bool operator==(const optimizer_form&) const = default;
};

} // namespace pulse
