// Inline functions that a small run calls most, all of them compiled, for a program whose own sources are not
// optimised: of a function that several objects have, a linker takes the first (see CMakeLists.txt).

#include <pulse/nn/initialise.hpp>
#include <pulse/train/adafactor.hpp>
#include <pulse/train/dynamic_code.hpp>
#include <pulse/train/random.hpp>

template void pulse::nn::initialise<float>(std::span<const pulse::parameter>, std::uint64_t, std::span<float>);
