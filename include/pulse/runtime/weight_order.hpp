#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/model/parameter.hpp>

namespace pulse {

/// Memory order of convolution weights: in a checkpoint and all that the host receives, or in a space's memory.
enum class weight_order : std::uint8_t {
    checkpoint,    ///< [out][in][ky][kx]
    channels_last, ///< [out][ky][kx][in], the order of images, which spares a library a transpose before it convolves
};

/// A convolution's weight within a contiguous array of values.
struct window_weight {
    std::size_t first{}; ///< of its elements
    std::size_t size{};
    std::size_t channels{};
    std::size_t taps{}; ///< of the window
};

/// Appends the weights that differ between the two orders, for tensors that begin at element `first`.
inline void append_windows(std::span<const parameter> tensors, std::size_t first, std::vector<window_weight>& to) {
    for (const parameter& p : tensors) {
        const auto size = static_cast<std::size_t>(p.elements());
        const auto channels = static_cast<std::size_t>(p.dims[1]);
        const auto taps = static_cast<std::size_t>(p.rank == 4 ? p.dims[2] * p.dims[3] : 1);
        if (size != 0 && taps > 1 && channels > 1) { to.push_back({first, size, channels, taps}); }
        first += size;
    }
}

/// Converts host values from order `from` to the other order in place: those of the windows that lie within `values`,
/// whose first value is element `first`.
template <class T>
void turn_weights(std::span<const window_weight> windows, weight_order from, std::span<T> values,
                  std::size_t first = 0) {
    std::vector<T> held;
    for (const window_weight& w : windows) {
        if (w.first < first || w.first - first >= values.size()) { continue; }
        const bool to_last = from == weight_order::checkpoint;
        const std::size_t rows = to_last ? w.channels : w.taps;
        const std::size_t columns = to_last ? w.taps : w.channels;
        held.resize(rows * columns);
        for (std::size_t o = 0; o != w.size; o += held.size()) {
            const std::span<T> matrix = values.subspan(w.first - first + o, held.size());
            std::copy(matrix.begin(), matrix.end(), held.begin());
            for (std::size_t c = 0; c != columns; ++c) {
                for (std::size_t r = 0; r != rows; ++r) { matrix[c * rows + r] = held[r * columns + c]; }
            }
        }
    }
}

} // namespace pulse
