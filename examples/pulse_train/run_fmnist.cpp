#include <pulse/zoo/ddpm.hpp>

#include "run_model.hpp"

template void pulse_train::run<pulse::ddpm_fmnist>(const arguments&, const std::atomic<bool>&);
