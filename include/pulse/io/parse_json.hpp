#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/io/json_field.hpp>

namespace pulse::io {

/// The JSON value of `text`. Throws input_error, which names `source` and, where the text stops being JSON, the last
/// field before; also for an object that names a field twice, of which one would be ignored.
[[nodiscard]] inline nlohmann::json parse_json(std::string_view text, std::string_view source) {
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
        const std::string place = last.empty() ? "" : " at or after the field '" + printable(last) + '\'';
        throw input_error(std::string(source) + ": not valid JSON" + place + ": " + printable(e.what(), 160));
    }
}

} // namespace pulse::io
