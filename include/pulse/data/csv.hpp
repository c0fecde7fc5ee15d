#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>

namespace pulse::data {

/// A row of a CSV file.
struct csv_row {
    std::vector<std::string> fields{};
    std::vector<bool> quoted{}; ///< of each field: an empty field in quotes is a text, not a missing one
    std::size_t line{};         ///< line on which it begins, from 1

    [[nodiscard]] bool operator==(const csv_row&) const = default;
};

/// Reads CSV (RFC 4180) row by row. Commas separate fields; quoted fields may hold commas, line ends and doubled
/// quotes. A line ends with LF, CR LF or CR; a leading byte order mark and empty lines are skipped.
class csv_reader {
public:
    /// The text must outlive the reader; messages name it `source`.
    csv_reader(std::string_view text, std::string_view source) : text_{text}, source_{source} {
        constexpr std::string_view mark = "\xEF\xBB\xBF";
        if (text_.substr(0, mark.size()) == mark) { at_ = mark.size(); }
    }

    /// The next row; none after the last. Throws input_error naming source and line for misplaced or unclosed quotes.
    [[nodiscard]] std::optional<csv_row> next() {
        while (at_ != text_.size() && ends_line()) { end_line(); }
        if (at_ == text_.size()) { return std::nullopt; }
        csv_row row{.line = line_};
        for (;;) {
            row.quoted.push_back(at_ != text_.size() && text_[at_] == '"');
            row.fields.push_back(field());
            if (at_ == text_.size()) { return row; }
            if (ends_line()) {
                end_line();
                return row;
            }
            ++at_; // the comma
        }
    }

    [[noreturn]] void fail(std::size_t line, const std::string& why) const {
        throw input_error(std::string{source_} + ": line " + std::to_string(line) + ": " + why);
    }

private:
    [[nodiscard]] bool ends_line() const { return text_[at_] == '\n' || text_[at_] == '\r'; }
    void end_line() {
        at_ += text_.substr(at_, 2) == "\r\n" ? 2 : 1;
        ++line_;
    }
    [[nodiscard]] std::string field() {
        if (at_ == text_.size() || text_[at_] != '"') {
            const std::size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
            std::string plain{text_.substr(at_, end - at_)};
            at_ = end;
            return plain;
        }
        const std::size_t first_line = line_;
        std::string quoted;
        for (++at_;; ++at_) {
            const std::size_t quote = text_.find('"', at_);
            if (quote == std::string_view::npos) { fail(first_line, "the quotes of a field are not closed"); }
            const std::string_view part = text_.substr(at_, quote - at_);
            quoted += part;
            for (std::size_t i = 0; i != part.size(); ++i) {
                line_ += part[i] == '\n' || (part[i] == '\r' && part.substr(i + 1, 1) != "\n") ? 1U : 0U;
            }
            at_ = quote + 1;
            if (at_ == text_.size() || text_[at_] != '"') { break; }
            quoted += '"';
        }
        if (at_ != text_.size() && text_[at_] != ',' && !ends_line()) {
            fail(line_, "a field continues after its closing quotes");
        }
        return quoted;
    }

    std::string_view text_;
    std::string_view source_;
    std::size_t at_{};
    std::size_t line_ = 1;
};

} // namespace pulse::data
