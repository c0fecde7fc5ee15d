#pragma once

#include <string>

#include <pulse/core/separate.hpp>

namespace pulse::launch {

/// Identifies the running build: the compiler, and the linker's build id of the program or shared library into which
/// this was compiled, or a fingerprint of its file if it has none. Builds with other sources, flags or compilers have
/// other texts; the same file has the same text on every machine.
///
/// Does not cover the shared libraries that it loads. Throws error when neither build id nor file can be read.
[[nodiscard]] PULSE_INLINE std::string build_text();

} // namespace pulse::launch

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/build.ipp> // IWYU pragma: keep
#endif
