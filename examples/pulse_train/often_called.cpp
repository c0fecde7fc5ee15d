// Optimised copies of the inline functions that a small run calls most, for a program whose own sources are not
// optimised: a linker takes the first copy of a function that several objects have (see CMakeLists.txt).

#include <pulse/nn/initialise.hpp>
#include <pulse/train/adafactor.hpp>
#include <pulse/train/dynamic_code.hpp>
#include <pulse/train/random.hpp>

template void pulse::nn::initialise<float>(std::span<const pulse::parameter>, std::uint64_t, std::span<float>);
