#pragma once

#include <cstdint>

#include <pulse/core/separate.hpp>
#include <pulse/data/picture_index.hpp>

namespace pulse::data {

/// Which of a folder's pictures there are, where a share of them is held out of training, for weights to be judged by.
enum class picture_part : std::uint8_t { trained_on, held_out };

/// Each picture stands once in an epoch, whatever the name of its folder asks for.
inline void see_each_once(picture_index& index) noexcept {
    for (picture_entry& entry : index.entries) { entry.repeats = 1; }
    index.repeats.clear();
}

/// Leaves one part of an index: `share` of its pictures are held out, at least one, and each stands once in them.
///
/// Names alone decide which: a picture that is added or removed moves few others from one part to the other, all seeds
/// hold out the same ones, and what has one name stays together. Throws input_error where none would be left to train
/// on.
PULSE_PICTURES_INLINE void keep_part(picture_index& index, double share, picture_part part);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/held_out.ipp> // IWYU pragma: keep
#endif
