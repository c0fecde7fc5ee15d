#include "small_unet.hpp"
#include "training_step.cuh"

namespace pulse_bench {

step_figures measure_small(const step_request& request) { return measure_step<small>(request); }

} // namespace pulse_bench
