#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <pulse/core/separate.hpp>

namespace pulse::io {

/// Labels of a loss curve and where its steps begin.
struct loss_plot {
    std::string_view title = "Training loss";
    std::string_view y_label = "loss";
    std::size_t first_step = 1;
};

/// A picture of the loss of each step: the raw values, pale, and their smoothed course, on a logarithmic axis when they
/// span more than a factor of 8. Values that are not finite leave a gap.
[[nodiscard]] PULSE_INLINE std::string loss_svg(std::span<const double> losses, const loss_plot& plot = {});

} // namespace pulse::io

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/io/loss_svg.ipp> // IWYU pragma: keep
#endif
