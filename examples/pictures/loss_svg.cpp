#include "loss_svg.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "svg.hpp"

namespace pictures {

std::string loss_svg(std::span<const double> losses, const loss_plot& plot) {
    constexpr double width = 860;
    constexpr double height = 420;
    constexpr double left = 76;
    constexpr double right = width - 24;
    constexpr double top = 48;
    constexpr double bottom = height - 56;
    svg_builder svg{width, height};
    svg.text((left + right) / 2, 28, plot.title, {.size = 16, .anchor = "middle", .weight = "bold"});

    std::vector<double> finite;
    for (const double loss : losses) {
        if (std::isfinite(loss)) { finite.push_back(loss); }
    }
    std::vector<std::pair<double, double>> validation;
    for (const auto& point : plot.validation) {
        if (!std::isfinite(point.second)) { continue; }
        validation.push_back(point);
        finite.push_back(point.second);
    }
    if (finite.empty()) {
        svg.text((left + right) / 2, (top + bottom) / 2, "no steps", {.size = 14, .anchor = "middle"});
        return svg.str();
    }

    const auto [least, most] = std::minmax_element(finite.begin(), finite.end());
    double low = *least;
    double high = *most;
    const bool logarithmic = low > 0 && high / low > 8;
    if (!logarithmic) {
        if (low > 0 && low < 0.6 * high) { low = 0; }
        if (high == low) {
            const double half = std::max(std::abs(high), 1e-3) * 0.5;
            high += half;
            low -= half;
        }
        const double margin = (high - low) * 0.05;
        high += margin;
        if (low != 0) { low -= margin; }
    } else {
        low /= 1.15;
        high *= 1.15;
    }
    const auto scaled = [&](double value) { return logarithmic ? std::log(value) : value; };
    const auto first_trained = static_cast<double>(plot.first_step);
    double first = first_trained;
    double last = first + static_cast<double>(losses.size()) - 1;
    for (const auto& point : validation) {
        first = std::min(first, point.first);
        last = std::max(last, point.first);
    }
    const auto x_of = [&](double step) { return left + (right - left) * (step - first) / std::max(1.0, last - first); };
    const auto y_of = [&](double value) {
        return bottom - (bottom - top) * (scaled(value) - scaled(low)) / (scaled(high) - scaled(low));
    };

    std::vector<double> ticks;
    if (logarithmic) {
        for (double power = std::pow(10.0, std::floor(std::log10(low))); power <= high; power *= 10) {
            for (const double digit : {1.0, 2.0, 5.0}) {
                if (digit * power >= low && digit * power <= high) { ticks.push_back(digit * power); }
            }
        }
    } else {
        ticks = round_ticks(low, high, 6);
    }
    int decimals = 0;
    if (const double finest =
            ticks.size() > 1 && !logarithmic ? ticks[1] - ticks[0] : std::abs(ticks.empty() ? 1 : ticks[0]);
        finest > 0 && finest < 1) {
        decimals = std::min(9, static_cast<int>(std::ceil(-std::log10(finest) - 1e-9)));
    }
    for (const double tick : ticks) {
        svg.line(left, y_of(tick), right, y_of(tick), "#e3e6ea");
        svg.text(left - 8, y_of(tick) + 4, svg_number(tick, decimals), {.anchor = "end", .colour = "#57606a"});
    }
    for (const double tick : round_ticks(first, last, 8)) {
        if (tick != std::floor(tick)) { continue; }
        svg.line(x_of(tick), bottom, x_of(tick), bottom + 5, "#8c959f");
        svg.text(x_of(tick), bottom + 20, svg_number(tick, 0), {.anchor = "middle", .colour = "#57606a"});
    }
    svg.line(left, bottom, right, bottom, "#8c959f");
    svg.line(left, top, left, bottom, "#8c959f");
    svg.text((left + right) / 2, bottom + 42, "step", {.size = 13, .anchor = "middle"});
    svg.text(22, (top + bottom) / 2, plot.y_label, {.size = 13, .anchor = "middle", .rotation = -90});

    std::vector<std::pair<double, double>> raw;
    std::vector<std::pair<double, double>> smooth;
    const auto draw = [&] {
        if (raw.size() > 1) { svg.polyline(raw, "#0969da", 1, 0.3); }
        raw.clear();
    };
    // Triangular moving average, a fortieth of the run to either side, narrower at the ends: no lag.
    const auto count = static_cast<std::ptrdiff_t>(losses.size());
    const std::ptrdiff_t reach = std::max<std::ptrdiff_t>(3, count / 40);
    double mean = 0;
    for (std::ptrdiff_t i = 0; i != count; ++i) {
        const double here = losses[static_cast<std::size_t>(i)];
        if (!std::isfinite(here)) {
            draw();
            continue;
        }
        // Near the start both sides shrink alike, or a steep curve would bend; the last steps keep their left side.
        const std::ptrdiff_t before = std::min(reach, i);
        const std::ptrdiff_t after = std::min({reach, i, count - 1 - i});
        double sum = 0;
        double mass = 0;
        for (std::ptrdiff_t k = -before; k <= after; ++k) {
            const double loss = losses[static_cast<std::size_t>(i + k)];
            const auto weight = static_cast<double>(reach + 1 - std::abs(k));
            if (std::isfinite(loss)) {
                sum += weight * loss;
                mass += weight;
            }
        }
        mean = sum / mass;
        const double x = x_of(first_trained + static_cast<double>(i));
        raw.emplace_back(x, y_of(here));
        smooth.emplace_back(x, y_of(mean));
    }
    draw();
    if (smooth.size() > 1) {
        svg.polyline(smooth, "#0550ae", 2.2);
    } else if (!smooth.empty()) {
        svg.rectangle(smooth[0].first - 3, smooth[0].second - 3, 6, 6, "#0550ae", "none", 3);
    }
    const auto four_digits = [](double value) {
        const double size = std::abs(value);
        return svg_number(value, size > 0 ? std::clamp(3 - static_cast<int>(std::floor(std::log10(size))), 0, 9) : 0);
    };
    svg.line(right - 252, top + 12, right - 228, top + 12, "#0969da", 1);
    svg.text(right - 222, top + 16, "each step", {.colour = "#57606a"});
    svg.line(right - 154, top + 12, right - 130, top + 12, "#0550ae", 2.2);
    svg.text(right - 124, top + 16, "smoothed: " + four_digits(mean), {.colour = "#57606a"});
    if (validation.empty()) { return svg.str(); }
    for (auto& point : validation) {
        point = {x_of(point.first), y_of(point.second)};
        svg.rectangle(point.first - 3, point.second - 3, 6, 6, "#bc4c00", "none", 3);
    }
    if (validation.size() > 1) { svg.polyline(validation, "#bc4c00", 1.6); }
    svg.line(right - 154, top + 30, right - 130, top + 30, "#bc4c00", 1.6);
    svg.text(right - 124, top + 34, "validation: " + four_digits(finite.back()), {.colour = "#57606a"});
    return svg.str();
}

} // namespace pictures
