#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

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

} // namespace pulse::diffusers
