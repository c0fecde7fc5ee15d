#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>

namespace pulse::io {

/// `text` for an error message: control characters of a damaged file stay out, and what is no UTF-8; what is longer
/// than `most` is cut.
[[nodiscard]] inline std::string printable(std::string text, std::size_t most = 40) {
    if (text.size() > most) { text = text.substr(0, most) + "..."; }
    text = nlohmann::json::parse(nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
               .get<std::string>();
    for (char& c : text) { c = static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c; }
    return text;
}

/// How the errors of a file name it.
struct json_document {
    std::string_view source; ///< the file, or what stands for it
    std::string_view what;   ///< "the plan"
    std::string_view format; ///< "pulse-plan/1"
};

/// A JSON value and its path in a document. Every reader throws input_error, which names the source and the path.
///
/// The value and the strings of the document must live as long as the field.
class json_field {
public:
    json_field(const nlohmann::json& root, const json_document& document) : value_{&root}, document_{document} {}

    /// Source and path, as errors begin.
    [[nodiscard]] std::string place() const {
        return std::string{document_.source} + ": " + (path_.empty() ? std::string{document_.what} : path_);
    }
    [[noreturn]] void fail(const std::string& why) const { throw input_error(place() + ' ' + why); }
    [[nodiscard]] json_field operator[](const char* name) const {
        require_object();
        json_field field{*this};
        field.path_ = path_.empty() ? name : path_ + '.' + name;
        const auto found = value_->find(name);
        if (found == value_->end()) { field.fail("is missing"); }
        field.value_ = &*found;
        return field;
    }
    [[nodiscard]] bool has(const char* name) const { return value_->is_object() && value_->contains(name); }
    /// A name that is not known would otherwise be a setting that is silently ignored.
    void only(std::initializer_list<std::string_view> names) const { only(std::vector<std::string_view>{names}); }
    void only(const std::vector<std::string_view>& names) const {
        require_object();
        for (const auto& entry : value_->items()) {
            bool known = false;
            for (const std::string_view name : names) { known = known || name == entry.key(); }
            if (!known) {
                fail("has the field '" + printable(entry.key()) + "', which " + std::string{document_.format} +
                     " does not know");
            }
        }
    }
    /// Entries of an array.
    [[nodiscard]] std::size_t size() const {
        if (!value_->is_array()) { fail("must be an array"); }
        return value_->size();
    }
    [[nodiscard]] json_field entry(std::size_t i) const {
        json_field field{*this};
        field.value_ = &value_->at(i);
        field.path_ = path_ + '[' + std::to_string(i) + ']';
        return field;
    }
    [[nodiscard]] std::vector<json_field> list() const {
        std::vector<json_field> all{};
        all.reserve(size());
        for (std::size_t i = 0; i != size(); ++i) { all.push_back(entry(i)); }
        return all;
    }
    [[nodiscard]] const nlohmann::json& value() const noexcept { return *value_; }

    [[nodiscard]] std::int64_t integer() const {
        constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        if (!value_->is_number_integer()) { fail("must be an integer"); }
        if (value_->is_number_unsigned() && value_->get<std::uint64_t>() > most) { fail("is out of range"); }
        return value_->get<std::int64_t>();
    }
    /// 0 to 2^64 - 1.
    [[nodiscard]] std::uint64_t natural() const {
        if (!value_->is_number_unsigned()) { fail("must be an integer of 0 to 2^64 - 1"); }
        return value_->get<std::uint64_t>();
    }
    [[nodiscard]] int small_integer() const {
        const std::int64_t value = integer();
        if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
            fail("is out of range");
        }
        return static_cast<int>(value);
    }
    [[nodiscard]] std::int64_t bytes() const {
        const std::int64_t value = integer();
        if (value < 0) { fail("must not be negative"); }
        return value;
    }
    [[nodiscard]] int count() const {
        const std::int64_t value = bytes();
        if (value < 1 || value > std::numeric_limits<int>::max()) { fail("must be at least 1 and fit an int"); }
        return static_cast<int>(value);
    }
    [[nodiscard]] double number() const {
        if (!value_->is_number()) { fail("must be a number"); }
        return value_->get<double>();
    }
    [[nodiscard]] double time() const {
        const double value = number();
        if (!std::isfinite(value)) { fail("must be finite"); }
        if (value < 0.0) { fail("must not be negative"); }
        return value;
    }
    [[nodiscard]] bool boolean() const {
        if (!value_->is_boolean()) { fail("must be true or false"); }
        return value_->get<bool>();
    }
    [[nodiscard]] const std::string& text() const {
        if (!value_->is_string()) { fail("must be a string"); }
        return value_->get_ref<const std::string&>();
    }
    [[nodiscard]] label name() const {
        const std::string& chars = text();
        if (chars.size() >= label::capacity) { fail("has more than 95 characters"); }
        if (chars.find('\0') != std::string::npos) { fail("must not contain a zero character"); }
        return label{std::string_view{chars}};
    }
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
    void require_object() const {
        if (!value_->is_object()) { fail("must be an object"); }
    }

    const nlohmann::json* value_;
    std::string path_{};
    json_document document_;
};

} // namespace pulse::io
