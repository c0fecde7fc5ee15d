#pragma once

#include <pulse/cuda/backend.cuh>

#include <attention_kernels.hpp>
#include <channels_last_reference.hpp>
#include <device_side.hpp>

namespace pulse::test {

/// A backend with its oracle and a source of numbers.
template <class P>
using backend_trial = operation_trial<device_side<cuda::backend<P>, channels_last_reference<double>>>;

} // namespace pulse::test
