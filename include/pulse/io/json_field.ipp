#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

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

} // namespace pulse::io
