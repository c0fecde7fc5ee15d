#pragma once

#include <pulse/reference/convolution.hpp>

// The loops that tests compare with, and spend their time in: reference_loops.cpp is optimised, whatever tests are.
extern template struct pulse::reference::convolution<float>;
extern template struct pulse::reference::convolution<double>;
