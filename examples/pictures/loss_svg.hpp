#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace pictures {

/// Labels of a loss curve and its first step.
struct loss_plot {
    std::string_view title = "Training loss";
    std::string_view y_label = "loss";
    std::size_t first_step = 1;
    /// A second curve of (step, loss): the validation loss.
    std::span<const std::pair<double, double>> validation{};
};

/// A picture of the loss of each step: the raw values, pale, and a smoothed curve, on a logarithmic axis if they span
/// more than a factor of 8; and the validation losses. Values that are not finite leave a gap.
[[nodiscard]] std::string loss_svg(std::span<const double> losses, const loss_plot& plot = {});

} // namespace pictures
