#pragma once

#include <string>

#include "arguments.hpp"

namespace CLI {
class App;
} // namespace CLI

namespace pulse_train {

/// Fills in what other arguments imply: the prompts of a file, the data of --validate, and the noise of --from. Throws
/// input_error naming an argument that conflicts with others.
void apply_rules(const CLI::App& app, const std::string& prompt_file, const std::string& validation, arguments& a);

/// Throws input_error naming `source` if a plan that releases gradients conflicts with the arguments.
void require_release(const arguments& a, const std::string& source);

} // namespace pulse_train
