#pragma once

#include <string>
#include <vector>

#include <pulse/core/separate.hpp>

namespace pulse::launch {

/// The numbers under which other machines may reach this one, without the loopback's and those that need a named link,
/// and last its name.
[[nodiscard]] PULSE_INLINE std::vector<std::string> own_addresses();

} // namespace pulse::launch

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/addresses.ipp> // IWYU pragma: keep
#endif
