#include "images.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/frozen/picture_source.hpp>

#include "idx.hpp"
#include "synthetic.hpp"

namespace pulse_train {

namespace {

/// Images of IDX files; errors name `option`.
[[nodiscard]] pulse::train::image_dataset load_idx(const arguments& a, const sample_shape& wanted,
                                                   const std::string& option, const std::string& folder,
                                                   const char* name, std::uint64_t seed) {
    idx_images images = read_idx_images(find_idx(folder, name));
    if (wanted.channels != 1 || images.rows != wanted.height || images.columns != wanted.width) {
        const auto text = [](auto height, auto width, auto channels) {
            return std::to_string(height) + "x" + std::to_string(width) + "x" + std::to_string(channels);
        };
        throw pulse::input_error{option + ": images of " + text(images.rows, images.columns, 1) + " do not fit " +
                                 a.model + ", which takes " + text(wanted.height, wanted.width, wanted.channels)};
    }
    return {images.rows, images.columns, 1, std::move(images.pixels), {.seed = seed}};
}

} // namespace

pulse::train::image_dataset load_images(const arguments& a, const sample_shape& wanted) {
    if (!a.said_of_pictures.empty()) {
        throw pulse::input_error{a.said_of_pictures +
                                 ": only for captioned pictures, on which this run does not train"};
    }
    if (a.data == synthetic_data) { return synthetic_images(wanted, a.seed); }
    return load_idx(a, wanted, "--data", a.data, "train-images-idx3-ubyte", a.seed);
}

pulse::train::image_dataset load_validation(const arguments& a, const sample_shape& wanted,
                                            pulse::train::image_dataset& images) {
    if (!a.validation_data.empty()) {
        return load_idx(a, wanted, "--validate", a.validation_data, "t10k-images-idx3-ubyte", 0);
    }
    const auto held = std::max<std::int64_t>(1, std::llround(a.pictures.held_out * images.size()));
    if (held >= images.size()) {
        throw pulse::input_error{"--validate: there are " + std::to_string(images.size()) + " images; with " +
                                 std::to_string(held) + " held out, none are left to train on"};
    }
    const auto pixels = images.pixels();
    const auto border = pixels.end() - static_cast<std::ptrdiff_t>(pixels.size() / images.size()) * held;
    const auto part = [&](auto from, auto to, std::uint64_t seed) {
        return pulse::train::image_dataset{
            images.height(), images.width(), images.channels(), {from, to}, {.seed = seed}};
    };
    pulse::train::image_dataset held_out = part(border, pixels.end(), 0);
    images = part(pixels.begin(), border, a.seed);
    return held_out;
}

std::string text_of_data(const run_inputs& in) {
    if (in.pictures != nullptr) { return in.pictures->text(); }
    const auto pixels = in.images->pixels();
    const std::string_view bytes{reinterpret_cast<const char*>(pixels.data()), pixels.size_bytes()};
    return std::to_string(in.images->size()) + " (" + pulse::fingerprint{}.add(bytes).text() + ")";
}

} // namespace pulse_train
