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

/// What a model reads of images, made up by the seed, the same on every rank and device: image i has prompt i mod
/// `prompts`, of which text encoders say normal numbers, and sizes and a class of its own.
class made_up_conditions {
public:
    static constexpr std::uint32_t prompts = 16;

    made_up_conditions(const pulse::condition_set& wanted, const sample_shape& shape, std::uint64_t seed);

    [[nodiscard]] const pulse::condition_set& wanted() const noexcept { return wanted_; }
    /// Condition `which` of those that are wanted.
    void read(std::uint32_t image, std::size_t which, std::span<float> to) const;

private:
    void read_mask(std::uint32_t prompt, std::span<float> to) const;
    void read_sizes(std::uint32_t image, std::span<float> to) const;

    pulse::condition_set wanted_;
    sample_shape shape_;
    pulse::train::random_source facts_;
    std::vector<std::vector<float>> texts_; ///< of each condition that is text, of all prompts one after the other
};

/// Samples of any shape to train on where only the work matters: each channel of one has 4 x 4 areas of normal
/// brightness by seed, so that there is something to learn.
[[nodiscard]] pulse::train::image_dataset synthetic_images(const sample_shape& shape, std::uint64_t seed);

/// The hint of an image of a set: how bright it is, 0 to 1, in each colour, enlarged to height and width of the hint.
void read_made_up_hint(const pulse::train::image_dataset& of, std::uint32_t image, const pulse::extent& hint,
                       std::span<float> to);

} // namespace pulse_train
