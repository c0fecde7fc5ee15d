#pragma once

#include <cstdint>

namespace pulse {

/// How an optimizer stores the moments of the gradient.
enum class moment_form : std::uint8_t {
    float32,
    /// 8 bits per value, and one float scale per block of moment_block neighbours (Dettmers et al. 2022).
    dynamic8,
    /// No first moment; of the second, the means of the rows and columns of each tensor, and every value of a vector
    /// (Adafactor, Shazeer and Stern 2018).
    factored,
};

/// How the part of a weight that its compute type cannot hold is kept, if that type is narrower than float.
enum class weight_form : std::uint8_t {
    float32,    ///< a master weight
    kahan,      ///< the rounding error, in the type of the value (Zamirai et al. 2020)
    stochastic, ///< not at all: the value is rounded up or down at random, without bias
};

/// 8-bit moments: this many neighbours in memory, within a replica's share of a layer, have one scale in common. A
/// checkpoint holds decoded values: a run that resumes with other shares, or on a backend that orders weights
/// differently, encodes them differently.
inline constexpr int moment_block = 256;

/// Number of scales for this many neighbouring moments.
[[nodiscard]] constexpr std::int64_t moment_blocks(std::int64_t elements) noexcept {
    return (elements + moment_block - 1) / moment_block;
}

/// What an optimizer keeps for each weight.
struct optimizer_form {
    moment_form moments{};
    weight_form weights{};
    bool averages{true}; ///< a moving average of the weights

    /// Whether a weight's new value depends on its position.
    [[nodiscard]] constexpr bool has_places() const noexcept {
        return moments == moment_form::dynamic8 || weights == weight_form::stochastic;
    }
    [[nodiscard]] constexpr bool is_factored() const noexcept { return moments == moment_form::factored; }
    [[nodiscard]] constexpr bool operator==(const optimizer_form&) const = default;
};

} // namespace pulse
