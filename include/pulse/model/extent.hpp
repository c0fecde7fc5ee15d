#pragma once

namespace pulse {

/// Height and width of a model's input, in pixels or latent pixels. The default means those of the model's type.
struct extent {
    int height{};
    int width{};

    [[nodiscard]] constexpr bool operator==(const extent&) const = default;
};

/// One of several extents of a run and its relative share of the run's steps; shares need not sum to 1.
struct extent_share {
    pulse::extent extent{};
    double share{1};

    [[nodiscard]] constexpr bool operator==(const extent_share&) const = default;
};

/// Maps sizes in a model's type to those of a run: all heights and widths scale as the model's input does.
struct resizing {
    extent from{1, 1};
    extent to{1, 1};

    [[nodiscard]] constexpr bool same() const noexcept { return from == to; }
    /// A `size` in the type, scaled; exact because `to` is a multiple of the step (steps_of).
    [[nodiscard]] constexpr int height(int size) const noexcept { return size * to.height / from.height; }
    [[nodiscard]] constexpr int width(int size) const noexcept { return size * to.width / from.width; }
    [[nodiscard]] constexpr bool operator==(const resizing&) const = default;
};

} // namespace pulse
