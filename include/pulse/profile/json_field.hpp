#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>

namespace pulse::detail {

/// `text` for an error message: control characters of a damaged file stay out, long ones are cut.
[[nodiscard]] inline std::string printable(std::string text) {
    if (text.size() > 40) { text = text.substr(0, 40) + "..."; }
    for (char& c : text) { c = static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c; }
    return text;
}

/// A JSON value of a profile and its path, which every error names.
class profile_field {
public:
    profile_field(const nlohmann::json& value, std::string path, std::string_view source)
        : value_(&value), path_(std::move(path)), source_(source) {}

    [[noreturn]] void fail(const std::string& why) const {
        throw input_error(std::string(source_) + ": " + (path_.empty() ? "the profile" : path_) + ' ' + why);
    }
    [[nodiscard]] profile_field operator[](const char* name) const {
        require_object();
        const auto found = value_->find(name);
        profile_field field{*value_, path_.empty() ? name : path_ + '.' + name, source_};
        if (found == value_->end()) { field.fail("is missing"); }
        field.value_ = &*found;
        return field;
    }
    /// A name that is not known would otherwise be a setting that is silently ignored.
    void only(std::initializer_list<std::string_view> names) const {
        require_object();
        for (const auto& entry : value_->items()) {
            bool known = false;
            for (const std::string_view name : names) { known = known || name == entry.key(); }
            if (!known) { fail("has the field '" + printable(entry.key()) + "', which pulse-profile/1 does not know"); }
        }
    }
    [[nodiscard]] std::vector<profile_field> list() const {
        if (!value_->is_array()) { fail("must be an array"); }
        std::vector<profile_field> all{};
        for (std::size_t i = 0; i != value_->size(); ++i) {
            all.emplace_back((*value_)[i], path_ + '[' + std::to_string(i) + ']', source_);
        }
        return all;
    }
    [[nodiscard]] std::int64_t bytes() const {
        constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        if (!value_->is_number_integer()) { fail("must be an integer"); }
        if (!value_->is_number_unsigned() && value_->get<std::int64_t>() < 0) { fail("must not be negative"); }
        if (value_->get<std::uint64_t>() > most) { fail("is out of range"); }
        return value_->get<std::int64_t>();
    }
    [[nodiscard]] std::int64_t bytes_or_none(const char* name) const {
        return value_->contains(name) ? (*this)[name].bytes() : 0;
    }
    [[nodiscard]] int count() const {
        const std::int64_t value = bytes();
        if (value < 1 || value > std::numeric_limits<int>::max()) { fail("must be at least 1 and fit an int"); }
        return static_cast<int>(value);
    }
    [[nodiscard]] double time() const {
        if (!value_->is_number()) { fail("must be a number"); }
        const double value = value_->get<double>();
        if (!std::isfinite(value)) { fail("must be finite"); }
        if (value < 0.0) { fail("must not be negative"); }
        return value;
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

private:
    void require_object() const {
        if (!value_->is_object()) { fail("must be an object"); }
    }

    const nlohmann::json* value_;
    std::string path_;
    std::string_view source_;
};

/// The JSON value of `text`; also refuses an object that names a field twice, of which one would be ignored. Where the
/// text stops being JSON, the error names the last field before.
[[nodiscard]] inline nlohmann::json parse_profile_json(std::string_view text, std::string_view source) {
    std::vector<std::set<std::string>> open{};
    std::string last{};
    const auto watch = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& value) {
        using event_t = nlohmann::json::parse_event_t;
        if (event == event_t::object_start) { open.emplace_back(); }
        if (event == event_t::object_end) { open.pop_back(); }
        if (event == event_t::key) {
            last = value.get<std::string>();
            if (!open.back().insert(last).second) {
                throw input_error(std::string(source) + ": the field '" + printable(last) + "' is there twice");
            }
        }
        return true;
    };
    try {
        return nlohmann::json::parse(text.begin(), text.end(), watch);
    } catch (const nlohmann::json::exception& e) {
        throw input_error(std::string(source) + ": not valid JSON" +
                          (last.empty() ? "" : " at or after the field '" + printable(last) + '\'') + ": " + e.what());
    }
}

} // namespace pulse::detail
