#pragma once

#include <optional>
#include <string>

#include <pulse/tune/plan_request.hpp>

namespace pulse_plan {

/// The command line: what to plan, the files and names that describe it, and where the result goes.
struct arguments {
    pulse::plan_request asked{.seconds = 2.0};
    std::string model{};
    std::string model_config{};
    std::string device{};
    std::string profile{};
    std::string cascade_with{};
    std::string cluster{};
    std::string out{};
    std::string svg{};
    std::string trace{};
    std::string torch{};
};

/// Parses the command line. Empty when the program must exit at once with `exit_code`: after --help, or after one line
/// on stderr that names the wrong argument.
[[nodiscard]] std::optional<arguments> parse(int argc, char** argv, int& exit_code);

} // namespace pulse_plan
