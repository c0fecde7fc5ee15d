#pragma once

#include <concepts>

#include <pulse/model/model.hpp>

namespace pulse {

/// Two backbones trained together on one set of ranks: neither reads what the other computes, and each has its own data
/// and loss. An executor runs a cascade as it runs a model.
template <any_model First, any_model Second>
struct cascade {
    using first = First;
    using second = Second;
};

/// What an executor runs.
template <class T>
concept model_or_cascade = any_model<T> || std::same_as<T, cascade<typename T::first, typename T::second>>;

} // namespace pulse
