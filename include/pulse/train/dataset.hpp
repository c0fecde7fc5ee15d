#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/train/random.hpp>

namespace pulse::train {

/// A permutation of [0, count) as a pure function: maps `position` under (seed, epoch); position < count < 2^32.
///
/// A balanced Feistel network over the next even number of bits with Philox as round function, iterated until it lands
/// below `count` (Black and Rogaway 2002, "cycle walking"): needs no memory and no order of calls.
[[nodiscard]] constexpr std::uint32_t shuffled_index(std::uint64_t seed, std::uint64_t epoch, std::uint32_t position,
                                                     std::uint32_t count) noexcept {
    unsigned half = 1;
    while (half != 16 && (std::uint64_t{1} << (2 * half)) < count) { ++half; }
    const std::uint32_t mask = (std::uint32_t{1} << half) - 1U;
    constexpr std::uint32_t rounds = 6;
    std::uint32_t value = position;
    do {
        std::uint32_t left = value >> half;
        std::uint32_t right = value & mask;
        for (std::uint32_t round = 0; round != rounds; ++round) {
            const auto words = philox4x32(
                {right, round, static_cast<std::uint32_t>(epoch),
                 static_cast<std::uint32_t>(random_stream::order) ^ (static_cast<std::uint32_t>(epoch >> 32U) << 8U)},
                {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
            left ^= words[0] & mask;
            std::swap(left, right);
        }
        value = (left << half) | right;
    } while (value >= count);
    return value;
}

/// How the images of a data set are transformed before the network sees them.
struct dataset_options {
    std::uint64_t seed = 0;
    bool shuffle = true;
    bool horizontal_flip = false; ///< mirror each image with probability 1/2
    int padding = 0;              ///< black pixels added on every side
};

/// Images in memory, delivered channels-last as floats in [-1, 1].
///
/// The training order is a function of the global position alone: position p is image p mod size() of epoch p / size(),
/// and each epoch has its own order. Any rank may ask for any position.
class image_dataset {
public:
    /// `pixels`: count x height x width x channels bytes. Throws input_error when the sizes do not fit together.
    image_dataset(int height, int width, int channels, std::vector<std::uint8_t> pixels, dataset_options options = {},
                  std::vector<std::uint8_t> labels = {}) :
        height_{height},
        width_{width}, channels_{channels}, pixels_{std::move(pixels)}, labels_{std::move(labels)}, options_{options} {
        if (height < 1 || width < 1 || channels < 1) {
            throw input_error("data set: height, width and channels must be at least 1");
        }
        if (options.padding < 0) { throw input_error("data set: padding must not be negative"); }
        const std::size_t image = stored_elements();
        if (pixels_.empty() || pixels_.size() % image != 0 || pixels_.size() / image >= 0xFFFFFFFFU) {
            throw input_error("data set: pixels must be 1 to 4294967294 whole images of " + std::to_string(image) +
                              " bytes, not " + std::to_string(pixels_.size()) + " bytes");
        }
        if (!labels_.empty() && labels_.size() != size()) {
            throw input_error("data set: there must be one label per image, not " + std::to_string(labels_.size()) +
                              " labels for " + std::to_string(size()) + " images");
        }
    }

    /// Number of images.
    [[nodiscard]] std::uint32_t size() const noexcept {
        return static_cast<std::uint32_t>(pixels_.size() / stored_elements());
    }
    /// Height, width and elements of a delivered image, padding included.
    [[nodiscard]] int height() const noexcept { return height_ + 2 * options_.padding; }
    [[nodiscard]] int width() const noexcept { return width_ + 2 * options_.padding; }
    [[nodiscard]] int channels() const noexcept { return channels_; }
    [[nodiscard]] std::size_t elements() const noexcept {
        return static_cast<std::size_t>(height()) * static_cast<std::size_t>(width()) *
               static_cast<std::size_t>(channels_);
    }
    [[nodiscard]] const dataset_options& options() const noexcept { return options_; }
    /// All images as stored, without padding.
    [[nodiscard]] std::span<const std::uint8_t> pixels() const noexcept { return pixels_; }

    /// Labels of all images in order; empty if the set has none.
    [[nodiscard]] std::span<const std::uint8_t> labels() const noexcept { return labels_; }

    /// Index of the image at a global position.
    [[nodiscard]] std::uint32_t index_at(std::uint64_t position) const noexcept {
        const auto within = static_cast<std::uint32_t>(position % size());
        return options_.shuffle ? shuffled_index(options_.seed, position / size(), within, size()) : within;
    }
    /// Whether the image at a global position is mirrored.
    [[nodiscard]] bool flipped_at(std::uint64_t position) const noexcept {
        return options_.horizontal_flip && random_source{options_.seed, random_stream::flip}.below(2, position) == 1U;
    }
    /// Writes image `index` (height x width x channels), padded and, if asked, mirrored.
    void image(std::uint32_t index, bool flip, std::span<float> out) const {
        std::fill(out.begin(), out.end(), -1.0F);
        const auto h = static_cast<std::size_t>(height_);
        const auto w = static_cast<std::size_t>(width_);
        const auto c = static_cast<std::size_t>(channels_);
        const auto pad = static_cast<std::size_t>(options_.padding);
        const std::uint8_t* source = pixels_.data() + index * stored_elements();
        for (std::size_t y = 0; y != h; ++y) {
            for (std::size_t x = 0; x != w; ++x) {
                const std::size_t column = flip ? w - 1 - x : x;
                float* const target = out.data() + ((y + pad) * (w + 2 * pad) + column + pad) * c;
                for (std::size_t k = 0; k != c; ++k) { target[k] = static_cast<float>(*source++) / 127.5F - 1.0F; }
            }
        }
    }

    /// The images at `out.size() / elements()` successive global positions.
    void batch(std::uint64_t first_position, std::span<float> out) const {
        const std::size_t count = out.size() / elements();
        for (std::size_t i = 0; i != count; ++i) {
            const std::uint64_t position = first_position + i;
            image(index_at(position), flipped_at(position), out.subspan(i * elements(), elements()));
        }
    }

private:
    [[nodiscard]] std::size_t stored_elements() const noexcept {
        return static_cast<std::size_t>(height_) * static_cast<std::size_t>(width_) *
               static_cast<std::size_t>(channels_);
    }

    int height_;
    int width_;
    int channels_;
    std::vector<std::uint8_t> pixels_;
    std::vector<std::uint8_t> labels_;
    dataset_options options_;
};

/// Shrinks images by averaging each `times` x `times` square into one pixel, rounded to a byte; keeps order, flips and
/// labels. Throws input_error where stored sizes or the padding are not multiples of `times`.
[[nodiscard]] inline image_dataset shrunk(const image_dataset& from, int times) {
    if (times < 1) { throw input_error("data set: the factor to shrink by must be at least 1"); }
    dataset_options options = from.options();
    const int stored_height = from.height() - 2 * options.padding;
    const int stored_width = from.width() - 2 * options.padding;
    if (stored_height % times != 0 || stored_width % times != 0 || options.padding % times != 0) {
        throw input_error("data set: images of " + std::to_string(stored_height) + "x" + std::to_string(stored_width) +
                          " pixels and their padding of " + std::to_string(options.padding) +
                          " must be multiples of the factor to shrink by, " + std::to_string(times));
    }
    options.padding /= times;
    const auto t = static_cast<std::size_t>(times);
    const auto width = static_cast<std::size_t>(stored_width);
    const auto channels = static_cast<std::size_t>(from.channels());
    // rows of all images are contiguous, so squares need not know where an image ends
    const std::size_t rows = from.pixels().size() / (width * channels) / t;
    const std::size_t square = t * t;
    std::vector<std::uint8_t> pixels;
    pixels.reserve(from.pixels().size() / square);
    for (std::size_t y = 0; y != rows; ++y) {
        for (std::size_t x = 0; x != width / t; ++x) {
            for (std::size_t c = 0; c != channels; ++c) {
                std::size_t sum = square / 2;
                for (std::size_t i = 0; i != square; ++i) {
                    sum += from.pixels()[((y * t + i / t) * width + x * t + i % t) * channels + c];
                }
                pixels.push_back(static_cast<std::uint8_t>(sum / square));
            }
        }
    }
    return {stored_height / times,
            stored_width / times,
            from.channels(),
            std::move(pixels),
            options,
            {from.labels().begin(), from.labels().end()}};
}

} // namespace pulse::train
