#include "support/reference_loops.hpp"

template struct pulse::reference::convolution<float>;
template struct pulse::reference::convolution<double>;
