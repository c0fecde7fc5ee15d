#pragma once

#include <string>

#include "arguments.hpp"

namespace CLI {
class App;
} // namespace CLI

namespace pulse_train {

/// Fills in what follows from other arguments: reads the prompts of a file, what --validate says, and how --from adds
/// noise. Throws input_error naming an argument that does not go with the others.
void apply_rules(const CLI::App& app, const std::string& prompt_file, const std::string& validation, arguments& a);

/// Throws input_error, naming `source`, where a plan that releases gradients does not go with the arguments.
void require_release(const arguments& a, const std::string& source);

} // namespace pulse_train
