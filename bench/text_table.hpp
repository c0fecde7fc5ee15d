#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace pulse_bench {

/// A table of text, right-aligned columns on a terminal or Markdown.
struct text_table {
    std::vector<std::string> heads{};
    /// Each as long as `heads`.
    std::vector<std::vector<std::string>> rows{};

    void print(bool markdown) const {
        std::vector<std::size_t> width{};
        for (std::size_t c = 0; c != heads.size(); ++c) {
            width.push_back(heads[c].size());
            for (const auto& row : rows) { width[c] = std::max(width[c], row[c].size()); }
        }
        const auto line = [&](const std::vector<std::string>& cells) {
            std::string text = markdown ? "|" : "";
            for (std::size_t c = 0; c != cells.size(); ++c) {
                text += markdown ? " " + cells[c] + " |"
                                 : std::string(c == 0 ? 0 : 2, ' ') + std::string(width[c] - cells[c].size(), ' ') +
                                       cells[c];
            }
            std::puts(text.c_str());
        };
        line(heads);
        if (markdown) {
            std::string rule = "|";
            for (std::size_t c = 0; c != heads.size(); ++c) { rule += "---|"; }
            std::puts(rule.c_str());
        }
        for (const auto& row : rows) { line(row); }
    }
};

/// The text that printf prints, at most 99 characters.
[[nodiscard]] inline std::string text_of(const char* format, double value) {
    char text[100];
    std::snprintf(text, sizeof text, format, value);
    return text;
}

} // namespace pulse_bench
