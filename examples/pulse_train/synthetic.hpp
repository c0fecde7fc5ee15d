#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/model/condition.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/train/dataset.hpp>
#include <pulse/train/random.hpp>

#include "setup.hpp"

namespace pulse_train {

/// Made-up conditions of images from the seed, the same on every rank and device: image i has prompt i mod `prompts`,
/// whose text states are normal numbers, and its own sizes and class.
class made_up_conditions {
public:
    static constexpr std::uint32_t prompts = 16;

    made_up_conditions(const pulse::condition_set& wanted, const sample_shape& shape, std::uint64_t seed);

    [[nodiscard]] const pulse::condition_set& wanted() const noexcept { return wanted_; }
    /// Writes condition `which` of the wanted ones.
    void read(std::uint32_t image, std::size_t which, std::span<float> to) const;

private:
    void read_mask(std::uint32_t prompt, std::span<float> to) const;
    void read_sizes(std::uint32_t image, std::span<float> to) const;

    pulse::condition_set wanted_;
    sample_shape shape_;
    pulse::train::random_source facts_;
    std::vector<std::vector<float>> texts_; ///< of each text condition, for all prompts one after another
};

/// Training samples of any shape for runs where only the work matters: each channel has 4 x 4 areas of normally
/// distributed brightness from the seed, so that there is something to learn.
[[nodiscard]] pulse::train::image_dataset synthetic_images(const sample_shape& shape, std::uint64_t seed);

/// Writes the hint of an image of a set: its brightness, 0 to 1, in each colour, enlarged to the hint's size.
void read_made_up_hint(const pulse::train::image_dataset& of, std::uint32_t image, const pulse::extent& hint,
                       std::span<float> to);

} // namespace pulse_train
