#pragma once

#include <atomic>

#include "arguments.hpp"

namespace pulse_train {

/// The whole job for one backbone on the host: data, profile, plan, training, samples, report. `stop` ends it after the
/// current step. Instantiated in a source file per backbone, which compile side by side.
template <class Model>
void run_on_host(const arguments& a, const std::atomic<bool>& stop);

} // namespace pulse_train
