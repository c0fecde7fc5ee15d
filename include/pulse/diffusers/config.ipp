#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/config_file.hpp>
#include <pulse/diffusers/config_key.hpp>
#include <pulse/io/json_field.hpp>

namespace pulse::diffusers {

namespace detail {

PULSE_INLINE bool same_value(const nlohmann::json& wanted, const nlohmann::json& found) {
    if (wanted.is_array()) {
        if (found.is_array() && found.size() != wanted.size()) { return false; }
        for (std::size_t i = 0; i != wanted.size(); ++i) {
            if (!wanted[i].is_null() && wanted[i] != (found.is_array() ? found[i] : found)) { return false; }
        }
        return true;
    }
    if (found.is_array() && !found.empty()) {
        return std::all_of(found.begin(), found.end(), [&](const auto& one) { return one == wanted; });
    }
    return wanted == found;
}

[[nodiscard]] inline bool fits(const config_key& key, const nlohmann::json& found) {
    if (key.fits) { return key.fits(found); }
    if (key.always_list && key.value.is_array() && !found.is_array()) { return false; }
    return same_value(key.value, found) ||
           std::any_of(key.as_well.begin(), key.as_well.end(), [&](const auto& other) { return other == found; });
}

/// A value as written: one value for a list that only repeats it. A level that does not read its value gets the value
/// of the next level that does, or of the last such level.
[[nodiscard]] inline nlohmann::json written_value(const config_key& key) {
    if (!key.value.is_array()) { return key.value; }
    nlohmann::json all = key.value;
    nlohmann::json filler = nullptr;
    for (const auto& one : all) { filler = one.is_null() ? filler : one; }
    for (std::size_t i = all.size(); i-- != 0;) {
        if (all[i].is_null()) { all[i] = filler; }
        filler = all[i];
    }
    const bool repeats = !key.always_list && !all.empty() && !all.front().is_array() &&
                         std::all_of(all.begin(), all.end(), [&](const auto& one) { return one == all.front(); });
    return repeats ? all.front() : all;
}

[[nodiscard]] inline std::string shown_value(const nlohmann::json& value) {
    return io::printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 120);
}

} // namespace detail

PULSE_INLINE component_config::component_config(std::string model_name, std::string name_of_class) :
    model{std::move(model_name)}, class_name{std::move(name_of_class)} {}
PULSE_INLINE component_config::component_config(const component_config& other) = default;
PULSE_INLINE component_config::component_config(component_config&& other) noexcept = default;
PULSE_INLINE component_config& component_config::operator=(const component_config& other) = default;
PULSE_INLINE component_config& component_config::operator=(component_config&& other) noexcept = default;
PULSE_INLINE component_config::~component_config() = default;

PULSE_INLINE void require_fit(const component_config& config, const nlohmann::json& file, std::string_view source) {
    const io::json_field root{file, {source, "the config", "a diffusers config"}};
    const std::string mine = config.model.empty() ? "pulse" : "the compiled model " + config.model;
    const std::string compiled = "; " + mine + " has ";
    if (!config.class_name.empty() && root["_class_name"].text() != config.class_name) {
        root["_class_name"].fail("is '" + io::printable(root["_class_name"].text()) + "'" + compiled + "'" +
                                 config.class_name + "'");
    }
    std::vector<config_key> keys = config.keys;
    keys.insert(keys.end(), config.unwritten.begin(), config.unwritten.end());
    for (const config_key& key : keys) {
        const auto found = file.find(key.name);
        const nlohmann::json& value = found == file.end() ? key.absent : *found;
        if (detail::fits(key, value)) { continue; }
        throw input_error(std::string{source} + ": " + key.name +
                          (found == file.end() ? " is missing, which means " : " is ") + detail::shown_value(value) +
                          compiled + detail::shown_value(detail::written_value(key)));
    }
    for (const auto& entry : file.items()) {
        const std::string& name = entry.key();
        const auto is_name = [&](const auto& known) { return known == name; };
        if (name.starts_with('_') || std::any_of(config.ignored.begin(), config.ignored.end(), is_name)) { continue; }
        if (std::any_of(keys.begin(), keys.end(), [&](const auto& key) { return key.name == name; })) { continue; }
        throw input_error(std::string{source} + ": " + io::printable(name) + " is " +
                          detail::shown_value(entry.value()) + "; " + mine +
                          " does not know this key, which may change what it computes");
    }
}

PULSE_INLINE void require_fit(const component_config& config, const std::filesystem::path& folder) {
    const detail::config_file file{folder / "config.json"};
    require_fit(config, file.value(), file.source());
}

PULSE_INLINE std::string class_of(const component_config& config) {
    return !config.class_name.empty() ? config.class_name : config.keys.front().value.front().get<std::string>();
}

PULSE_INLINE std::string print_config(const component_config& config) {
    nlohmann::ordered_json out;
    if (!config.class_name.empty()) { out["_class_name"] = config.class_name; }
    for (const config_key& key : config.keys) { out[key.name] = detail::written_value(key); }
    return out.dump(2) + "\n";
}

} // namespace pulse::diffusers
