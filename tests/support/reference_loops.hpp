#pragma once

#include <pulse/reference/convolution.hpp>

// The loops that tests compare with spend most of the time, so reference_loops.cpp is optimised in every build.
extern template struct pulse::reference::convolution<float>;
extern template struct pulse::reference::convolution<double>;
