#pragma once

#include <concepts>

#include <pulse/model/model.hpp>

namespace pulse {

/// Two backbones that are trained together on one set of ranks: nothing that one makes is read by the other, and each
/// has data and a loss of its own. An executor runs it as it runs a model.
template <any_model First, any_model Second>
struct cascade {
    using first = First;
    using second = Second;
};

/// What an executor runs.
template <class T>
concept model_or_cascade = any_model<T> || std::same_as<T, cascade<typename T::first, typename T::second>>;

} // namespace pulse
