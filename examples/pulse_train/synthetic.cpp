#include "synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <pulse/train/random.hpp>

namespace pulse_train {

text_states::text_states(std::size_t elements, std::uint64_t seed) : elements_{elements}, values_(prompts * elements) {
    pulse::train::random_source{seed, pulse::train::random_stream::synthetic_text}.fill_normal(0, values_);
}

pulse::train::image_dataset synthetic_images(const sample_shape& shape, std::uint64_t seed) {
    constexpr int samples = 512;
    constexpr int areas = 4;
    const pulse::train::random_source brightness{seed, pulse::train::random_stream::synthetic_images};
    std::vector<std::uint8_t> pixels;
    for (int i = 0; i != samples; ++i) {
        for (int y = 0; y != shape.height; ++y) {
            for (int x = 0; x != shape.width; ++x) {
                for (int c = 0; c != shape.channels; ++c) {
                    const int area = (y * areas / shape.height * areas + x * areas / shape.width) * shape.channels + c;
                    const int index = i * areas * areas * shape.channels + area;
                    const float value = 0.5F * brightness.normal(static_cast<std::uint64_t>(index));
                    pixels.push_back(
                        static_cast<std::uint8_t>(std::lround(127.5F * (1.0F + std::clamp(value, -1.0F, 1.0F)))));
                }
            }
        }
    }
    return {shape.height, shape.width, shape.channels, std::move(pixels), {.seed = seed}};
}

} // namespace pulse_train
