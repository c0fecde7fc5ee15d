#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace pulse {

/// How stages are placed on devices.
enum class placement : std::uint8_t {
    folded,      ///< zigzag: stages s and S-1-s share a device, S = 2PW
    sequential,  ///< stage s on device s, S = P
    interleaved, ///< stage s on device s mod P
};

[[nodiscard]] constexpr std::string_view name_of(placement kind) noexcept {
    switch (kind) {
    case placement::folded: return "folded";
    case placement::sequential: return "sequential";
    case placement::interleaved: return "interleaved";
    }
    return "?";
}

/// How a skip tensor reaches a decoder layer on another device; `relayed` passes it through every boundary in between.
enum class skip_routing : std::uint8_t { direct, relayed };

/// What is dropped after a stage's forward and restored by running that forward again from the stage's input.
enum class recomputation : std::uint8_t {
    none,      ///< nothing: activations and skip tensors wait where they were made
    skips,     ///< a stage whose skips later stages of its device read: made again before the first of their forwards
    stages,    ///< what every stage saves for its backward: made again right before that; tensors it hands out stay
    selective, ///< as `stages`, but only for some stages
};

[[nodiscard]] constexpr std::string_view name_of(recomputation kind) noexcept {
    switch (kind) {
    case recomputation::none: return "none";
    case recomputation::skips: return "skips";
    case recomputation::stages: return "stages";
    case recomputation::selective: return "selective";
    }
    return "?";
}

/// A kind of recomputation, which converts to this type, and the stages for `selective`.
struct stage_recomputation {
    recomputation kind{recomputation::none};
    /// For selective, by stage: whether it runs again; stages beyond the end do not. Not bool: clang 14 has no
    /// constexpr vector<bool>.
    std::vector<char> stages{};

    constexpr stage_recomputation(recomputation of = recomputation::none) : kind{of} {}
    constexpr explicit stage_recomputation(std::vector<char> of) :
        kind{recomputation::selective}, stages{std::move(of)} {}

    /// Whether stage s runs its forward again right before its backward.
    [[nodiscard]] constexpr bool is_whole(int s) const noexcept {
        if (kind != recomputation::selective) { return kind == recomputation::stages; }
        return static_cast<std::size_t>(s) < stages.size() && stages[static_cast<std::size_t>(s)] != 0;
    }
    [[nodiscard]] constexpr bool operator==(const stage_recomputation&) const = default;
};

/// Number of stages of a placement over P devices with W waves (W chunks per device when interleaved).
[[nodiscard]] constexpr int stage_count(placement kind, int devices, int waves) noexcept {
    switch (kind) {
    case placement::folded: return 2 * devices * waves;
    case placement::sequential: return devices;
    case placement::interleaved: return devices * waves;
    }
    return 0;
}

/// The device of stage `stage`.
[[nodiscard]] constexpr int device_of(placement kind, int stage, int devices) noexcept {
    if (kind == placement::folded) {
        const int step = stage % (2 * devices);
        return step < devices ? step : 2 * devices - 1 - step;
    }
    return stage % devices;
}

/// A contiguous range of layers that runs as one unit: first_layer to last_layer, both included. Layers are those of
/// the cost table, which may be parts of layers.
struct stage {
    int index{};
    int device{};
    int first_layer{};
    int last_layer{};

    [[nodiscard]] constexpr bool operator==(const stage&) const = default;
};

/// Where a model is cut, and which device runs each stage.
struct partition {
    placement kind{placement::folded};
    int devices{1};
    int waves{1};
    std::vector<stage> stages{};

    [[nodiscard]] constexpr bool operator==(const partition&) const = default;
};

/// The stage that holds `layer`. Requires a valid partition that covers the layer.
[[nodiscard]] constexpr int stage_of(const std::vector<stage>& stages, int layer) noexcept {
    int s = 0;
    while (stages[static_cast<std::size_t>(s)].last_layer < layer) { ++s; }
    return s;
}

} // namespace pulse
