#pragma once

#include <pulse/model/model.hpp>

namespace pulse {

/// Two backbones that are trained together on one set of ranks: nothing that one makes is read by the other, and each
/// has data and a loss of its own. An executor runs it as it runs a model.
template <any_model First, any_model Second>
struct cascade {
    using first = First;
    using second = Second;
};

} // namespace pulse
