#include <pulse/zoo/sdxl.hpp>

#include "training_step.cuh"

namespace pulse_bench {

step_figures measure_sdxl(const step_request& request) { return measure_step<pulse::sdxl>(request); }

} // namespace pulse_bench
