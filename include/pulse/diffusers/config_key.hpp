#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace pulse::diffusers {

/// A key of a component's config.json: the compiled network's value, and what the key means if it is absent.
///
/// A list has one value for each level, null if the network does not read it there. Unless the key is always a list, a
/// file may have one value for a whole list, and a list of equal values for one value.
struct config_key {
    std::string name{};
    nlohmann::json value{};
    nlohmann::json absent{};               ///< what the class assumes without the key
    std::vector<nlohmann::json> as_well{}; ///< other values that mean the same
    bool always_list{};
    /// If set, decides instead of a comparison of values.
    std::function<bool(const nlohmann::json&)> fits{};
};

} // namespace pulse::diffusers
