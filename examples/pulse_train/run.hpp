#pragma once

#include <atomic>

#include "arguments.hpp"

namespace pulse_train {

/// The whole job for one backbone on one side: data, profile, plan, training, samples, report. `stop` ends it after the
/// current step.
using run_function = void (*)(const arguments& a, const std::atomic<bool>& stop);

/// Made once for every job that the program can do: each is a source file of its own, which compile side by side, and
/// what is linked is what there is.
struct registration {
    registration(const char* model, backend_kind where, precision_kind precision, run_function run);
};

/// The job that the arguments ask for. Throws input_error naming the argument when this build does not have it.
[[nodiscard]] run_function run_for(const arguments& a);

} // namespace pulse_train
