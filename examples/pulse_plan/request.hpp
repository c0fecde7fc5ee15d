#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <pulse/hardware/cluster.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/tune/search_space.hpp>

#include "arguments.hpp"

namespace pulse_plan {

/// What is to be planned: the command line with its files read and its names looked up.
struct request {
    std::function<pulse::cost_table(int)> costs_of{};
    pulse::cluster machine{};
    pulse::tune_options options{};
    /// Parameters of the model; of a profile, bytes.
    std::optional<std::int64_t> parameters{};
    std::int64_t parameter_bytes{};
    /// What was assumed because nothing was said, a sentence each.
    std::vector<std::string> assumptions{};
};

/// Reads and looks up what `a` names. Throws input_error naming the argument, the file or the field.
[[nodiscard]] request make_request(const arguments& a);

} // namespace pulse_plan
