#pragma once

#include <atomic>

#include "arguments.hpp"

namespace pulse_train {

/// The whole job for one backbone: data, profile, plan, training, samples, report. `stop` ends it after the current
/// step. Defined in run_model.hpp and instantiated in a source file per backbone, which compile side by side.
template <class Model>
void run(const arguments& a, const std::atomic<bool>& stop);

} // namespace pulse_train
