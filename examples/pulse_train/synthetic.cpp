#include "synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <pulse/train/condition_values.hpp>
#include <pulse/train/random.hpp>

#include "run_inputs.hpp"

namespace pulse_train {

made_up_conditions::made_up_conditions(const pulse::condition_set& wanted, const sample_shape& shape,
                                       std::uint64_t seed) :
    wanted_{wanted},
    shape_{shape}, facts_{seed, pulse::train::random_stream::synthetic_facts} {
    const pulse::train::random_source text{seed, pulse::train::random_stream::synthetic_text};
    std::uint64_t first = 0;
    for (const pulse::condition& one : wanted_.all()) {
        std::vector<float>& of_prompts = texts_.emplace_back();
        if (!one.is_text()) { continue; }
        of_prompts.resize(prompts * static_cast<std::size_t>(one.elements()));
        text.fill_normal(first, of_prompts);
        first += of_prompts.size();
    }
}

void made_up_conditions::read(std::uint32_t image, std::size_t which, std::span<float> to) const {
    const pulse::condition& one = wanted_.all()[which];
    const std::uint32_t prompt = image % prompts;
    switch (one.kind) {
    case pulse::condition_kind::text_states:
    case pulse::condition_kind::pooled_text:
        std::ranges::copy(std::span{texts_[which]}.subspan(prompt * to.size(), to.size()), to.begin());
        break;
    case pulse::condition_kind::text_mask: read_mask(prompt, to); break;
    case pulse::condition_kind::original_crop_target: read_sizes(image, to); break;
    case pulse::condition_kind::original_target_crop:
        read_sizes(image, to);
        std::swap_ranges(to.begin() + 2, to.begin() + 4, to.begin() + 4);
        break;
    case pulse::condition_kind::style: to[0] = 0; break;
    case pulse::condition_kind::class_label:
        to[0] = static_cast<float>(facts_.below(static_cast<std::uint32_t>(one.classes), 8 * std::uint64_t{image}));
        break;
    }
}

/// For each text encoder, a prompt has from one token up to the maximum.
void made_up_conditions::read_mask(std::uint32_t prompt, std::span<float> to) const {
    std::uint64_t index = 8 * std::uint64_t{prompt} + 1;
    for (const pulse::condition& one : wanted_.all()) {
        if (one.kind != pulse::condition_kind::text_states) { continue; }
        const auto all = static_cast<std::size_t>(one.tokens);
        const std::size_t length = 1 + facts_.below(static_cast<std::uint32_t>(one.tokens), index++);
        std::ranges::fill(to.first(length), 1.0F);
        std::ranges::fill(to.subspan(length, all - length), 0.0F);
        to = to.subspan(all);
    }
}

/// A picture of one to two times the size, cropped to the sample at a random place: original size, crop, target size.
void made_up_conditions::read_sizes(std::uint32_t image, std::span<float> to) const {
    const int extents[]{shape_.height, shape_.width};
    for (std::size_t side = 0; side != 2; ++side) {
        const auto target = static_cast<std::uint32_t>(extents[side]);
        const std::uint64_t index = 8 * std::uint64_t{image} + 4 + 2 * side;
        const std::uint32_t more = facts_.below(target + 1, index);
        to[side] = static_cast<float>(target + more);
        to[side + 2] = static_cast<float>(facts_.below(more + 1, index + 1));
        to[side + 4] = static_cast<float>(target);
    }
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

void read_made_up_hint(const pulse::train::image_dataset& of, std::uint32_t image, const pulse::extent& hint,
                       std::span<float> to) {
    const auto channels = static_cast<std::size_t>(of.channels());
    const std::size_t first = image * of.elements();
    float* out = to.data();
    for (int y = 0; y != hint.height; ++y) {
        for (int x = 0; x != hint.width; ++x) {
            const int pixel = y * of.height() / hint.height * of.width() + x * of.width() / hint.width;
            const auto here = of.pixels().subspan(first + static_cast<std::size_t>(pixel) * channels, channels);
            const auto sum = std::accumulate(here.begin(), here.end(), 0.0F);
            out = std::fill_n(out, 3, sum / (255.0F * static_cast<float>(channels)));
        }
    }
}

pulse::train::condition_source run_inputs::conditions_of(int rank) const {
    pulse::train::condition_source all;
    if (!runs_first_stage(rank)) { return all; }
    if (conditions != nullptr) {
        all.wanted = conditions->wanted();
        all.read = [of = conditions, in = images](std::uint64_t position, std::size_t which, std::span<float> to) {
            of->read(in->index_at(position), which, to);
        };
    }
    all.hint_elements = hint_elements();
    all.read_hint = [in = images, size = hint](std::uint64_t position, std::span<float> to) {
        read_made_up_hint(*in, in->index_at(position), size, to);
    };
    return all;
}

pulse::train::condition_source run_inputs::conditions_of_images() const {
    pulse::train::condition_source all;
    if (conditions != nullptr) {
        all.wanted = conditions->wanted();
        all.read = [of = conditions](std::uint64_t image, std::size_t which, std::span<float> to) {
            of->read(static_cast<std::uint32_t>(image), which, to);
        };
    }
    if (images == nullptr) { return all; }
    all.hint_elements = hint_elements();
    all.read_hint = [in = images, size = hint](std::uint64_t image, std::span<float> to) {
        read_made_up_hint(*in, static_cast<std::uint32_t>(image % in->size()), size, to);
    };
    return all;
}

} // namespace pulse_train
