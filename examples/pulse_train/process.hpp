#pragma once

#include <atomic>

#include "arguments.hpp"

namespace pulse_train {

/// The whole job where every rank is a process of its own that mpirun or srun has started; gives the exit code. Every rank
/// says why it ends when it does not end well, and all give a code other than 0 then.
[[nodiscard]] int run_as_process(const arguments& a, const std::atomic<bool>& stop);

} // namespace pulse_train
