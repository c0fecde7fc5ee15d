#include "run_model.hpp"
#include "small_model.hpp"

template void pulse_train::run<pulse_train::ddpm_fmnist_small>(const arguments&, const std::atomic<bool>&);
