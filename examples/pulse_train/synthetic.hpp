#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/train/dataset.hpp>

#include "setup.hpp"

namespace pulse_train {

/// What a text encoder would say of some prompts: normal numbers by seed, the same on every rank and device. Image i of
/// the data has the states of prompt i mod prompts.
class text_states {
public:
    static constexpr std::size_t prompts = 16;

    /// `elements`: of the states of one prompt, as the model's conditioning module reads them.
    text_states(std::size_t elements, std::uint64_t seed);

    [[nodiscard]] std::size_t elements() const noexcept { return elements_; }
    /// Of all prompts, one after the other.
    [[nodiscard]] std::span<const float> values() const noexcept { return values_; }
    /// The prompt of an image.
    [[nodiscard]] static std::size_t prompt_of(std::uint32_t image) noexcept { return image % prompts; }
    [[nodiscard]] std::span<const float> of_prompt(std::size_t prompt) const {
        return std::span{values_}.subspan(prompt * elements_, elements_);
    }

private:
    std::size_t elements_;
    std::vector<float> values_;
};

/// Samples of any shape to train on where only the work matters: each channel of one has 4 x 4 areas of normal
/// brightness by seed, so that there is something to learn.
[[nodiscard]] pulse::train::image_dataset synthetic_images(const sample_shape& shape, std::uint64_t seed);

} // namespace pulse_train
