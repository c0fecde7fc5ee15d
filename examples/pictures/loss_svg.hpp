#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace pictures {

/// Labels of a loss curve and where its steps begin.
struct loss_plot {
    std::string_view title = "Training loss";
    std::string_view y_label = "loss";
    std::size_t first_step = 1;
    /// A second curve, of steps and losses: that of what is not trained on.
    std::span<const std::pair<double, double>> validation{};
};

/// A picture of the loss of each step: the raw values, pale, and their smoothed course, on a logarithmic axis when they
/// span more than a factor of 8; and of the losses of validation. Values that are not finite leave a gap.
[[nodiscard]] std::string loss_svg(std::span<const double> losses, const loss_plot& plot = {});

} // namespace pictures
