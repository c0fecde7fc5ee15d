#include <pulse/zoo/stable_diffusion.hpp>

#include "training_step.cuh"

namespace pulse_bench {

step_figures measure_sd21(const step_request& request) { return measure_step<pulse::sd21>(request); }

} // namespace pulse_bench
