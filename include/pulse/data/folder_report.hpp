#pragma once

#include <string>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/data/captioned_pictures.hpp>

namespace pulse::data {

/// What is read of a folder and what is left out, one line each; the second line is absent if nothing is left out.
[[nodiscard]] PULSE_PICTURES_INLINE std::vector<std::string> folder_report(const captioned_pictures& pictures);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/folder_report.ipp> // IWYU pragma: keep
#endif
