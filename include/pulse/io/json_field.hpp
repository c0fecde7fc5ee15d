#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/label.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/json_forward.hpp>

namespace pulse::io {

/// `text` made safe for an error message: without control characters and invalid UTF-8, cut off if longer than `most`.
[[nodiscard]] PULSE_INLINE std::string printable(std::string text, std::size_t most = 40);

/// How error messages name a file.
struct json_document {
    std::string_view source; ///< the file, or a name in its place
    std::string_view what;   ///< "the plan"
    std::string_view format; ///< "pulse-plan/1"
};

/// A JSON value and its path in a document. Every reader throws input_error, which names the source and the path.
///
/// The value and the strings of the document must live as long as the field.
class json_field {
public:
    json_field(const nlohmann::json& root, const json_document& document) : value_{&root}, document_{document} {}

    /// Source and path, with which error messages begin.
    [[nodiscard]] std::string place() const;
    [[noreturn]] void fail(const std::string& why) const;
    [[nodiscard]] json_field operator[](const char* name) const;
    [[nodiscard]] bool has(const char* name) const;
    /// Fails on any other name: an unknown setting must not be ignored silently.
    void only(std::initializer_list<std::string_view> names) const { only(std::vector<std::string_view>{names}); }
    void only(const std::vector<std::string_view>& names) const;
    /// Entries of an array.
    [[nodiscard]] std::size_t size() const;
    [[nodiscard]] json_field entry(std::size_t i) const;
    [[nodiscard]] std::vector<json_field> list() const;
    [[nodiscard]] const nlohmann::json& value() const noexcept { return *value_; }

    [[nodiscard]] std::int64_t integer() const;
    /// 0 to 2^64 - 1.
    [[nodiscard]] std::uint64_t natural() const;
    [[nodiscard]] int small_integer() const;
    [[nodiscard]] std::int64_t bytes() const;
    [[nodiscard]] int count() const;
    [[nodiscard]] double number() const;
    [[nodiscard]] double time() const;
    [[nodiscard]] bool boolean() const;
    [[nodiscard]] const std::string& text() const;
    [[nodiscard]] label name() const;
    template <class T>
    [[nodiscard]] T one_of(std::initializer_list<std::pair<std::string_view, T>> choices) const {
        std::string known{};
        for (const auto& [word, value] : choices) {
            if (text() == word) { return value; }
            known += (known.empty() ? "" : ", ") + std::string{word};
        }
        fail("is '" + printable(text()) + "'; it must be one of " + known);
    }

private:
    void require_object() const;

    const nlohmann::json* value_;
    std::string path_{};
    json_document document_;
};

} // namespace pulse::io

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/io/json_field.ipp> // IWYU pragma: keep
#endif
