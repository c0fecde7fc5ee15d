#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/io/json_forward.hpp>

namespace pulse::diffusers {

struct config_key; // diffusers/config_key.hpp

/// The config.json of a compiled network: what is written, and what a file must say.
struct component_config {
    std::string model;      ///< pulse's name for messages; empty: messages speak of pulse
    std::string class_name; ///< _class_name; empty: transformers', which `keys` begins with
    std::vector<config_key> keys;
    std::vector<config_key> unwritten;     ///< keys that only some versions of the class have
    std::vector<std::string_view> ignored; ///< keys that do not change what the network computes

    PULSE_INLINE explicit component_config(std::string model_name = {}, std::string name_of_class = {});
    PULSE_INLINE component_config(const component_config& other);
    PULSE_INLINE component_config(component_config&& other) noexcept;
    PULSE_INLINE component_config& operator=(const component_config& other);
    PULSE_INLINE component_config& operator=(component_config&& other) noexcept;
    PULSE_INLINE ~component_config();
};

namespace detail {

/// Whether a file's value means the same as the network's.
[[nodiscard]] PULSE_INLINE bool same_value(const nlohmann::json& wanted, const nlohmann::json& found);

} // namespace detail

/// Throws input_error unless a config.json describes this network. The one-line message has `source`, the first key
/// that differs and both values.
///
/// A key that is neither in the config nor ignored is refused, since it may change what the network computes. Keys that
/// begin with '_' are diffusers' notes and are skipped.
PULSE_INLINE void require_fit(const component_config& config, const nlohmann::json& file, std::string_view source);

/// The same for the config.json of a component's folder.
PULSE_INLINE void require_fit(const component_config& config, const std::filesystem::path& folder);

/// The class that reads the config: diffusers', or the class of transformers that the first key lists.
[[nodiscard]] PULSE_INLINE std::string class_of(const component_config& config);

/// The text of the config.json.
[[nodiscard]] PULSE_INLINE std::string print_config(const component_config& config);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/config.ipp> // IWYU pragma: keep
#endif
