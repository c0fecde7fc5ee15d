#pragma once

#include <stdexcept>
#include <string>

namespace pulse {

/// Base class of the exceptions that pulse throws deliberately.
struct error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Input from outside is wrong; the text names the file, field or argument.
struct input_error : error {
    using error::error;
};

/// No plan exists under the given limits; the text says which limit binds.
struct infeasible_error : error {
    using error::error;
};

} // namespace pulse
