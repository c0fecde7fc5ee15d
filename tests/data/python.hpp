#pragma once

#include <cstdlib>
#include <string>

#include <support/skip.hpp>

namespace pulse::test {

/// Whether python3 can import a module, optionally with the packages of a folder; if not, reports the case as skipped.
[[nodiscard]] inline bool python_has(const std::string& module, const std::string& packages = {}) {
    const std::string python = PULSE_TEST_PYTHON;
    if (python.find("NOTFOUND") == std::string::npos && !python.empty() &&
        std::system(
            ("PYTHONPATH='" + packages + "' '" + python + "' -c 'import " + module + "' 2>/dev/null").c_str()) == 0) {
        return true;
    }
    skip(("python3 cannot import " + module).c_str());
    return false;
}

/// Whether a Python script run with these arguments succeeds.
[[nodiscard]] inline bool run_python(const std::string& file, const std::string& arguments,
                                     const std::string& packages = {}) {
    return std::system(("PYTHONPATH='" + packages + "' '" PULSE_TEST_PYTHON "' '" + file + "' " + arguments).c_str()) ==
           0;
}

} // namespace pulse::test
