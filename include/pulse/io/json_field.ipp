#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/json_field.hpp>

namespace pulse::io {

PULSE_INLINE std::string printable(std::string text, std::size_t most) {
    if (text.size() > most) { text = text.substr(0, most) + "..."; }
    text = nlohmann::json::parse(nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
               .get<std::string>();
    for (char& c : text) { c = static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c; }
    return text;
}

PULSE_INLINE std::string json_field::place() const {
    return std::string{document_.source} + ": " + (path_.empty() ? std::string{document_.what} : path_);
}

PULSE_INLINE void json_field::fail(const std::string& why) const { throw input_error(place() + ' ' + why); }

PULSE_INLINE json_field json_field::operator[](const char* name) const {
    require_object();
    json_field field{*this};
    field.path_ = path_.empty() ? name : path_ + '.' + name;
    const auto found = value_->find(name);
    if (found == value_->end()) { field.fail("is missing"); }
    field.value_ = &*found;
    return field;
}

PULSE_INLINE bool json_field::has(const char* name) const { return value_->is_object() && value_->contains(name); }

PULSE_INLINE void json_field::only(const std::vector<std::string_view>& names) const {
    require_object();
    for (const auto& entry : value_->items()) {
        bool known = false;
        for (const std::string_view name : names) { known = known || name == entry.key(); }
        if (!known) {
            fail("has the field '" + printable(entry.key()) + "', which " + std::string{document_.format} +
                 " does not define");
        }
    }
}

PULSE_INLINE std::size_t json_field::size() const {
    if (!value_->is_array()) { fail("must be an array"); }
    return value_->size();
}

PULSE_INLINE json_field json_field::entry(std::size_t i) const {
    json_field field{*this};
    field.value_ = &value_->at(i);
    field.path_ = path_ + '[' + std::to_string(i) + ']';
    return field;
}

PULSE_INLINE std::vector<json_field> json_field::list() const {
    std::vector<json_field> all{};
    all.reserve(size());
    for (std::size_t i = 0; i != size(); ++i) { all.push_back(entry(i)); }
    return all;
}

PULSE_INLINE std::int64_t json_field::integer() const {
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!value_->is_number_integer()) { fail("must be an integer"); }
    if (value_->is_number_unsigned() && value_->get<std::uint64_t>() > most) { fail("is out of range"); }
    return value_->get<std::int64_t>();
}

PULSE_INLINE std::uint64_t json_field::natural() const {
    if (!value_->is_number_unsigned()) { fail("must be an integer from 0 to 2^64 - 1"); }
    return value_->get<std::uint64_t>();
}

PULSE_INLINE int json_field::small_integer() const {
    const std::int64_t value = integer();
    if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) { fail("is out of range"); }
    return static_cast<int>(value);
}

PULSE_INLINE std::int64_t json_field::bytes() const {
    const std::int64_t value = integer();
    if (value < 0) { fail("must not be negative"); }
    return value;
}

PULSE_INLINE int json_field::count() const {
    const std::int64_t value = bytes();
    if (value < 1 || value > std::numeric_limits<int>::max()) { fail("must be 1 to 2147483647"); }
    return static_cast<int>(value);
}

PULSE_INLINE double json_field::number() const {
    if (!value_->is_number()) { fail("must be a number"); }
    return value_->get<double>();
}

PULSE_INLINE double json_field::time() const {
    const double value = number();
    if (!std::isfinite(value)) { fail("must be finite"); }
    if (value < 0.0) { fail("must not be negative"); }
    return value;
}

PULSE_INLINE bool json_field::boolean() const {
    if (!value_->is_boolean()) { fail("must be true or false"); }
    return value_->get<bool>();
}

PULSE_INLINE const std::string& json_field::text() const {
    if (!value_->is_string()) { fail("must be a string"); }
    return value_->get_ref<const std::string&>();
}

PULSE_INLINE label json_field::name() const {
    const std::string& chars = text();
    if (chars.size() >= label::capacity) { fail("has more than 95 characters"); }
    if (chars.find('\0') != std::string::npos) { fail("must not contain a zero character"); }
    return label{std::string_view{chars}};
}

PULSE_INLINE void json_field::require_object() const {
    if (!value_->is_object()) { fail("must be an object"); }
}

} // namespace pulse::io
