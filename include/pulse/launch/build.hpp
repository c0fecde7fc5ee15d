#pragma once

#include <string>

#include <pulse/core/separate.hpp>

namespace pulse::launch {

/// Stands for the build that runs: the build id that the linker made of all code and constants of the program or shared
/// library into which this was compiled, or a fingerprint of its file where there is none, and the compiler. Builds
/// with other sources, flags or compilers have other texts; the same file has the same one on every machine.
///
/// What is not in it: shared libraries that it loads. Throws error when neither build id nor file can be read.
[[nodiscard]] PULSE_INLINE std::string build_text();

} // namespace pulse::launch

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/build.ipp> // IWYU pragma: keep
#endif
