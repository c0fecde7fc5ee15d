#include "run_on_host.hpp"
#include "small_model.hpp"

template void pulse_train::run_on_host<pulse_train::ddpm_fmnist_small>(const arguments&, const std::atomic<bool>&);
