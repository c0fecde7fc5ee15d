#pragma once

#include <string>

#include "arguments.hpp"

namespace CLI {
class App;
} // namespace CLI

namespace pulse_train {

/// Fills in what follows from other arguments, and reads the prompts of a file and the noise of --from. Throws
/// input_error naming an argument that does not go with the others.
void apply_rules(const CLI::App& app, const std::string& prompt_file, arguments& a);

} // namespace pulse_train
