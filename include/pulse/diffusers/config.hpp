#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/separate.hpp>

namespace pulse::diffusers {

/// A key of a component's config.json: what a compiled network is, and what the key means where it is absent.
///
/// A list has one value for each level, of which null stands for one that the network does not read. Unless the key is
/// always a list, a file may have one value for all of it, and a list of equal ones for one value.
struct config_key {
    std::string name{};
    nlohmann::json value{};
    nlohmann::json absent{};               ///< what the class does without the key
    std::vector<nlohmann::json> as_well{}; ///< other values that mean the same
    bool always_list{};
    /// Decides instead, where equal values are not the question.
    std::function<bool(const nlohmann::json&)> fits{};
};

/// The config.json of a compiled network: what is written of it, and what a file must say.
struct component_config {
    std::string model{};      ///< pulse's name, for messages; empty: what pulse has at all
    std::string class_name{}; ///< _class_name; empty: transformers', which have a key for it among `keys`
    std::vector<config_key> keys{};
    std::vector<config_key> unwritten{};     ///< keys that only some versions of the class have
    std::vector<std::string_view> ignored{}; ///< keys that change nothing that the network computes
};

namespace detail {

/// Whether a file's value means what the network has.
[[nodiscard]] PULSE_INLINE bool same_value(const nlohmann::json& wanted, const nlohmann::json& found);

} // namespace detail

/// Throws input_error unless a config.json describes this network. One line has `source`, the first key that differs
/// and both values.
///
/// A key that is neither in the config nor ignored is refused: it may change what the network computes. Those that
/// begin with '_' are notes of diffusers.
PULSE_INLINE void require_fit(const component_config& config, const nlohmann::json& file, std::string_view source);

/// The same for the config.json of a component's folder.
PULSE_INLINE void require_fit(const component_config& config, const std::filesystem::path& folder);

/// The text of its config.json.
[[nodiscard]] PULSE_INLINE std::string print_config(const component_config& config);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/config.ipp> // IWYU pragma: keep
#endif
