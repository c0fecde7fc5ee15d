#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pulse {

[[nodiscard]] inline std::string number_text(double value, int places) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.*f", places, value);
    return text.data();
}

/// The fewest digits that read back as the same number.
[[nodiscard]] inline std::string exact_text(double value) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

[[nodiscard]] inline std::string percent_text(double share) { return number_text(100 * share, 2) + " %"; }

/// A duration, given in microseconds, as s, ms or us.
[[nodiscard]] inline std::string duration_text(double us) {
    if (us >= 1e6) { return number_text(us * 1e-6, 3) + " s"; }
    if (us >= 1e3) { return number_text(us * 1e-3, 2) + " ms"; }
    return number_text(us, 1) + " us";
}

/// A byte count for people: "1.5 GiB".
[[nodiscard]] inline std::string bytes_text(double bytes) {
    constexpr std::array<std::string_view, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t unit = 0;
    while (bytes >= 1024 && unit + 1 != units.size()) {
        bytes /= 1024;
        ++unit;
    }
    std::string digits = number_text(bytes, unit == 0 ? 0 : bytes < 10 ? 2 : 1);
    if (digits.find('.') != std::string::npos) {
        digits.erase(digits.find_last_not_of('0') + 1);
        if (digits.back() == '.') { digits.pop_back(); }
    }
    return digits + " " + std::string{units[unit]};
}

/// Digits in groups of three: 865,910,724.
[[nodiscard]] inline std::string grouped(std::int64_t value) {
    std::string digits = std::to_string(value);
    const std::size_t first = value < 0 ? 1 : 0;
    for (std::size_t at = digits.size(); at > first + 3;) {
        at -= 3;
        digits.insert(at, 1, ',');
    }
    return digits;
}

/// Columns of text, each as wide as its widest cell; the first row is the heading.
class text_table {
public:
    void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

    /// The first `left` columns are left-aligned, the others right-aligned.
    [[nodiscard]] std::string str(std::size_t left) const {
        std::vector<std::size_t> widths;
        for (const auto& cells : rows_) {
            widths.resize(std::max(widths.size(), cells.size()), 0);
            for (std::size_t c = 0; c != cells.size(); ++c) { widths[c] = std::max(widths[c], cells[c].size()); }
        }
        std::string text;
        for (const auto& cells : rows_) {
            std::string line;
            for (std::size_t c = 0; c != cells.size(); ++c) {
                const std::string pad(widths[c] - cells[c].size(), ' ');
                line += "  " + (c < left ? cells[c] + pad : pad + cells[c]);
            }
            text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
        }
        return text;
    }

private:
    std::vector<std::vector<std::string>> rows_{};
};

} // namespace pulse
