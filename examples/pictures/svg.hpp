#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pictures {

/// Text made valid inside XML: markup escaped, control characters removed.
[[nodiscard]] inline std::string xml_escaped(std::string_view text) {
    std::string result;
    for (const char c : text) {
        switch (c) {
        case '<': result += "&lt;"; break;
        case '>': result += "&gt;"; break;
        case '&': result += "&amp;"; break;
        case '"': result += "&quot;"; break;
        default:
            if (static_cast<unsigned char>(c) >= 0x20U) { result += c; }
        }
    }
    return result;
}

/// A number with at most `decimals` places and no trailing zeros, independent of locale; 0 if it is not finite.
[[nodiscard]] inline std::string svg_number(double value, int decimals = 2) {
    if (!std::isfinite(value)) { return "0"; }
    double scaled = std::round(std::abs(value) * std::pow(10.0, decimals));
    if (scaled >= 9e15) { scaled = 9e15; }
    const std::string digits = std::to_string(static_cast<std::int64_t>(scaled));
    const auto places = static_cast<std::size_t>(decimals);
    std::string padded = digits.size() <= places ? std::string(places + 1 - digits.size(), '0') + digits : digits;
    std::string result = padded.substr(0, padded.size() - places);
    std::string fraction = padded.substr(padded.size() - places);
    while (!fraction.empty() && fraction.back() == '0') { fraction.pop_back(); }
    if (!fraction.empty()) { result += "." + fraction; }
    return value < 0 && scaled > 0 ? "-" + result : result;
}

/// Round positions for about `count` ticks between `low` and `high`: multiples of 1, 2 or 5 times a power of ten.
[[nodiscard]] inline std::vector<double> round_ticks(double low, double high, int count) {
    if (!(high > low) || count < 1) { return {low}; }
    const double raw = (high - low) / count;
    const double power = std::pow(10.0, std::floor(std::log10(raw)));
    const double ratio = raw / power;
    const double step = power * (ratio <= 1.0 ? 1.0 : ratio <= 2.0 ? 2.0 : ratio <= 5.0 ? 5.0 : 10.0);
    std::vector<double> ticks;
    for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1.0) {
        ticks.push_back(k * step);
    }
    return ticks;
}

/// Builds an SVG picture element by element; coordinates in pixels from the top left corner.
class svg_builder {
public:
    svg_builder(double width, double height) : width_{width}, height_{height} {}

    struct text_style {
        double size = 12;
        std::string_view anchor = "start"; ///< start, middle or end
        std::string_view colour = "#24292f";
        std::string_view weight = "normal";
        double rotation = 0; ///< degrees, clockwise
    };

    void rectangle(double x, double y, double w, double h, std::string_view fill, std::string_view stroke = "none",
                   double radius = 0, std::string_view tooltip = {}) {
        body_ += "<rect x=\"" + svg_number(x) + "\" y=\"" + svg_number(y) + "\" width=\"" +
                 svg_number(std::max(0.0, w)) + "\" height=\"" + svg_number(std::max(0.0, h)) + "\" fill=\"" +
                 xml_escaped(fill) + "\"";
        if (stroke != "none") { body_ += " stroke=\"" + xml_escaped(stroke) + "\" stroke-width=\"0.75\""; }
        if (radius > 0) { body_ += " rx=\"" + svg_number(radius) + "\""; }
        body_ += tooltip.empty() ? "/>\n" : "><title>" + xml_escaped(tooltip) + "</title></rect>\n";
    }

    void line(double x1, double y1, double x2, double y2, std::string_view colour, double width = 1,
              std::string_view dashes = {}) {
        body_ += "<line x1=\"" + svg_number(x1) + "\" y1=\"" + svg_number(y1) + "\" x2=\"" + svg_number(x2) +
                 "\" y2=\"" + svg_number(y2) + "\" stroke=\"" + xml_escaped(colour) + "\" stroke-width=\"" +
                 svg_number(width) + "\"";
        if (!dashes.empty()) { body_ += " stroke-dasharray=\"" + xml_escaped(dashes) + "\""; }
        body_ += "/>\n";
    }

    void polyline(std::span<const std::pair<double, double>> points, std::string_view colour, double width,
                  double opacity = 1) {
        body_ += "<polyline fill=\"none\" stroke-linejoin=\"round\" stroke=\"" + xml_escaped(colour) +
                 "\" stroke-width=\"" + svg_number(width) + "\"";
        if (opacity < 1) { body_ += " stroke-opacity=\"" + svg_number(opacity) + "\""; }
        body_ += " points=\"";
        for (const auto& [x, y] : points) { body_ += svg_number(x) + "," + svg_number(y) + " "; }
        body_ += "\"/>\n";
    }

    /// A filled area; the last point connects to the first.
    void polygon(std::span<const std::pair<double, double>> points, std::string_view fill) {
        body_ += "<polygon fill=\"" + xml_escaped(fill) + "\" points=\"";
        for (const auto& [x, y] : points) { body_ += svg_number(x) + "," + svg_number(y) + " "; }
        body_ += "\"/>\n";
    }

    void text(double x, double y, std::string_view content, const text_style& style) {
        body_ += "<text x=\"" + svg_number(x) + "\" y=\"" + svg_number(y) + "\" font-size=\"" + svg_number(style.size) +
                 "\" fill=\"" + xml_escaped(style.colour) + "\" text-anchor=\"" + xml_escaped(style.anchor) + "\"";
        if (style.weight != "normal") { body_ += " font-weight=\"" + xml_escaped(style.weight) + "\""; }
        if (style.rotation != 0) {
            body_ +=
                " transform=\"rotate(" + svg_number(style.rotation) + " " + svg_number(x) + " " + svg_number(y) + ")\"";
        }
        body_ += ">" + xml_escaped(content) + "</text>\n";
    }
    void text(double x, double y, std::string_view content) { text(x, y, content, text_style{}); }

    /// The whole document, on a white background.
    [[nodiscard]] std::string str() const {
        const std::string w = svg_number(width_);
        const std::string h = svg_number(height_);
        return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h + "\" viewBox=\"0 0 " + w +
               " " + h + "\" font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\">\n" +
               "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" + body_ + "</svg>\n";
    }

private:
    double width_;
    double height_;
    std::string body_{};
};

} // namespace pictures
