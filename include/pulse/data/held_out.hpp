#pragma once

#include <cstdint>

#include <pulse/core/separate.hpp>
#include <pulse/data/picture_index.hpp>

namespace pulse::data {

/// Part of a folder's pictures, where a share of them is held out of training to judge weights by.
enum class picture_part : std::uint8_t { trained_on, held_out };

/// Makes each picture occur once in an epoch, whatever the name of its folder asks for.
inline void see_each_once(picture_index& index) noexcept {
    for (picture_entry& entry : index.entries) { entry.repeats = 1; }
    index.repeats.clear();
}

/// Keeps one part of an index: `share` of its pictures, at least one, are held out, each once in an epoch.
///
/// Only names decide the part: adding or removing a picture moves few others to another part, all seeds hold out the
/// same pictures, and pictures of one name stay together. Throws input_error when none would be left to train on.
PULSE_PICTURES_INLINE void keep_part(picture_index& index, double share, picture_part part);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/held_out.ipp> // IWYU pragma: keep
#endif
