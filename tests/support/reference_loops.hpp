#pragma once

#include <pulse/reference/convolution.hpp>

// The loops that tests spend their time in, and what they compare with: reference_loops.cpp is optimised, whatever tests
// are.
extern template struct pulse::reference::convolution<float>;
extern template struct pulse::reference::convolution<double>;
