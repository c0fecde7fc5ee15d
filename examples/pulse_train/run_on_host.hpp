#pragma once

#include "host_side.hpp"
#include "run.hpp"
#include "run_model.hpp"

template <class Model>
void pulse_train::run_on_host(const arguments& a, const std::atomic<bool>& stop) {
    run_on<Model>(host_side{a}, a, stop);
}
