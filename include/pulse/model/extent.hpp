#pragma once

namespace pulse {

/// Height and width of what a model reads: pixels, or those of latents. None: those of the model's type.
struct extent {
    int height{};
    int width{};

    [[nodiscard]] constexpr bool operator==(const extent&) const = default;
};

/// One of several extents of a run, and its part of the run's steps: of shares that add up to something.
struct extent_share {
    pulse::extent extent{};
    double share{1};

    [[nodiscard]] constexpr bool operator==(const extent_share&) const = default;
};

/// From the sizes in a model's type to those of a run: every height and width changes as the model's input does.
struct resizing {
    extent from{1, 1};
    extent to{1, 1};

    [[nodiscard]] constexpr bool same() const noexcept { return from == to; }
    /// Of what has `size` in the type; `size` is a multiple of the step (steps_of).
    [[nodiscard]] constexpr int height(int size) const noexcept { return size * to.height / from.height; }
    [[nodiscard]] constexpr int width(int size) const noexcept { return size * to.width / from.width; }
    [[nodiscard]] constexpr bool operator==(const resizing&) const = default;
};

} // namespace pulse
