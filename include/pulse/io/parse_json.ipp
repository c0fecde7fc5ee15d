#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::io {

namespace detail {

/// Checks a text without building values: refuses invalid JSON and objects that repeat a field.
class json_fields : public nlohmann::json::json_sax_t {
public:
    explicit json_fields(std::string_view source) : source_{source} {}

    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(std::int64_t) override { return true; }
    bool number_unsigned(std::uint64_t) override { return true; }
    bool number_float(double, const std::string&) override { return true; }
    bool string(std::string&) override { return true; }
    bool binary(nlohmann::json::binary_t&) override { return true; }
    bool start_array(std::size_t) override { return deeper(); }
    bool end_array() override {
        --depth_;
        return true;
    }
    bool start_object(std::size_t) override {
        open_.emplace_back();
        return deeper();
    }
    bool end_object() override {
        --depth_;
        open_.pop_back();
        return true;
    }
    bool key(std::string& name) override {
        last_ = name;
        if (!open_.back().insert(last_).second) {
            throw input_error(source_ + ": the field '" + printable(last_) + "' occurs twice");
        }
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& e) override {
        const std::string place = last_.empty() ? "" : " at or after the field '" + printable(last_) + '\'';
        throw input_error(source_ + ": not valid JSON" + place + ": " + printable(e.what(), 160));
    }

private:
    /// Limits the depth, because values are copied and printed recursively.
    bool deeper() {
        if (constexpr int most = 200; ++depth_ > most) {
            throw input_error(source_ + ": is nested deeper than " + std::to_string(most) + " levels");
        }
        return true;
    }

    std::string source_;
    int depth_ = 0;
    std::vector<std::set<std::string>> open_{};
    std::string last_{};
};

} // namespace detail

PULSE_INLINE nlohmann::json parse_json(std::string_view text, std::string_view source) {
    detail::json_fields fields{source};
    nlohmann::json::sax_parse(text.begin(), text.end(), &fields);
    return nlohmann::json::parse(text.begin(), text.end());
}

} // namespace pulse::io
