#include <pulse/zoo/ddpm.hpp>

#include "run_on_host.hpp"

template void pulse_train::run_on_host<pulse::ddpm_fmnist>(const arguments&, const std::atomic<bool>&);
