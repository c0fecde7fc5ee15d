#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <pulse/core/separate.hpp>
#include <pulse/cuda/engine_choices.hpp>
#include <pulse/cuda/json.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::cuda {

namespace detail {

inline constexpr const char* engine_file_format = "pulse-engines/1";

} // namespace detail

PULSE_INLINE engine_choice_groups parse_engines(std::string_view text, std::string_view source) {
    const nlohmann::json value = io::parse_json(text, source);
    const io::json_field root{value, {source, "the engines", detail::engine_file_format}};
    root.only({"format", "groups"});
    if (root["format"].text() != detail::engine_file_format) {
        root["format"].fail(std::string{"must be "} + detail::engine_file_format);
    }
    engine_choice_groups all;
    for (const io::json_field& group : root["groups"].list()) {
        group.only({"made_for", "engines"});
        auto& of_group = all[group["made_for"].text()];
        for (const io::json_field& one : group["engines"].list()) {
            one.only({"name", "what", "engine", "seconds", "first_us", "us", "uses"});
            of_group[one["what"].text()] = {.name = one["name"].text(),
                                            .engine = one["engine"].text(),
                                            .seconds = one["seconds"].time(),
                                            .first_us = one["first_us"].time(),
                                            .us = one["us"].time(),
                                            .uses = one["uses"].time()};
        }
    }
    return all;
}

PULSE_INLINE std::string print_engines(const engine_choice_groups& all) {
    using json = nlohmann::ordered_json;
    json groups = json::array();
    for (const auto& [made_for, group] : all) {
        json engines = json::array();
        for (const auto& [what, one] : group) {
            engines.push_back({{"name", one.name},
                               {"what", what},
                               {"engine", one.engine},
                               {"seconds", one.seconds},
                               {"first_us", one.first_us},
                               {"us", one.us},
                               {"uses", one.uses}});
        }
        groups.push_back({{"made_for", made_for}, {"engines", std::move(engines)}});
    }
    const json file{{"format", detail::engine_file_format}, {"groups", std::move(groups)}};
    return file.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

} // namespace pulse::cuda
