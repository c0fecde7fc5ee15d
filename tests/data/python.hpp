#pragma once

#include <cstdlib>
#include <string>

#include <support/skip.hpp>

namespace pulse::test {

/// Whether python3 can import a module; if not, the case is reported as skipped.
[[nodiscard]] inline bool python_has(const std::string& module) {
    const std::string python = PULSE_TEST_PYTHON;
    if (python.find("NOTFOUND") == std::string::npos && !python.empty() &&
        std::system(("'" + python + "' -c 'import " + module + "' 2>/dev/null").c_str()) == 0) {
        return true;
    }
    skip(("python3 cannot import " + module).c_str());
    return false;
}

/// Whether a program of Python in a file ends well with these arguments.
[[nodiscard]] inline bool run_python(const std::string& file, const std::string& arguments) {
    return std::system(("'" PULSE_TEST_PYTHON "' -B '" + file + "' " + arguments).c_str()) == 0;
}

} // namespace pulse::test
