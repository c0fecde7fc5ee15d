#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/encoded_pictures.hpp>
#include <pulse/io/png.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

namespace encoded_tests {

using namespace pulse::data;
using pulse::fingerprint;
using pulse::input_error;
namespace fs = std::filesystem;
using floats = std::vector<float>;

inline constexpr int count = 11;

/// Pictures of several shapes with four distinct captions; number 4 is truncated, and the caption of number 7 is no
/// UTF-8.
struct captioned_files : pulse::test::scratch {
    explicit captioned_files(bool damaged) {
        for (int i = 0; i != count; ++i) {
            const auto image =
                pulse::test::some_picture(14 + 3 * (i % 5), 12 + 5 * (i % 3), static_cast<unsigned>(i + 1));
            std::string file = pulse::io::encode_png(image);
            if (damaged && i == 4) { file.resize(file.size() / 2); }
            pulse::test::put(path / name(i, ".png"), file);
            pulse::test::put(path / name(i, ".txt"), damaged && i == 7 ? "\xFF" : "caption " + std::to_string(i % 4));
        }
    }
    static std::string name(int i, const char* ending) { return std::to_string(100 + i) + ending; }
};

constexpr picture_options with(bad_picture on_bad) {
    return {
        .height = 8, .width = 6, .seed = 5, .horizontal_flip = true, .caption_dropout = 0.25, .on_bad_picture = on_bad};
}

/// Eight moments of a picture, and the states of a text; the members count the calls.
struct networks {
    std::map<std::string, int> asked_texts{};
    int asked_pictures = 0;

    static floats moments(const picture_sample& sample) {
        floats sums(8, 0.0F);
        for (std::size_t i = 0; i != sample.pixels.size(); ++i) {
            sums[i % 8] += sample.pixels[i] * static_cast<float>(i + 1);
        }
        return sums;
    }
    static floats states(const std::string& text) {
        floats all(6, 0.5F);
        for (std::size_t i = 0; i != text.size(); ++i) { all[i % 6] += static_cast<float>(text[i]); }
        return all;
    }
    auto picture() {
        return [this](const picture_sample& sample, encoded_pictures::row_values values) {
            ++asked_pictures;
            const floats made = moments(sample);
            std::copy(made.begin(), made.end(), values[0].begin());
        };
    }
    auto caption() {
        return [this](const std::string& text, encoded_pictures::row_values values) {
            ++asked_texts[text];
            const floats made = states(text);
            std::copy(made.begin(), made.begin() + 4, values[0].begin());
            std::copy(made.begin() + 4, made.end(), values[1].begin());
        };
    }
};

/// Three pictures or two captions per shard.
inline encoded_shapes small_shapes() {
    return {.picture = {{{"moments", {2, 2, 2}}}},
            .caption = {{"states", {2, 2}}, {"pooled", {2}}},
            .picture_encoder = fingerprint{}.add(1),
            .text_encoder = fingerprint{}.add(2),
            .shard_bytes = 3 * 12 * sizeof(float)};
}

inline encoded_pictures opened(const captioned_pictures& pictures, const fs::path& cache,
                               const encoded_shapes& shapes = small_shapes()) {
    return {pictures, distinct_samples{pictures, cache}, cache, shapes};
}

/// The shards' contents, without notes, which depend on the times of files.
inline std::map<std::string, std::string> files_in(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::directory_iterator{folder}) {
        if (entry.path().extension() == ".notes") { continue; }
        all[entry.path().filename().string()] = pulse::test::bytes_of(entry.path());
    }
    return all;
}

template <class Act>
std::string refusal_of(const Act& act) {
    try {
        act();
    } catch (const input_error& fault) { return fault.what(); }
    return "nothing refused";
}
inline bool mentions(const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* const part : parts) {
        if (text.find(part) == std::string::npos) {
            MESSAGE("'" << text << "' lacks '" << part << "'");
            return false;
        }
    }
    return text.find('\n') == std::string::npos;
}

/// Over three epochs every position has what encoding in each step gives.
inline void check_same(const captioned_pictures& pictures, const encoded_pictures& encoded) {
    for (std::uint64_t position = 0; position != 3 * pictures.size(); ++position) {
        const picture_sample inline_sample = pictures.at(position);
        const encoded_sample sample = encoded.at(position);
        floats moments(8);
        floats sizes(4);
        floats states(4);
        floats pooled(2);
        encoded.pictures(sample.bucket).read(sample.picture_row, 0, moments);
        encoded.pictures(sample.bucket).read(sample.picture_row, 1, sizes);
        encoded.captions().read(sample.caption_row, 0, states);
        encoded.captions().read(sample.caption_row, 1, pooled);
        states.insert(states.end(), pooled.begin(), pooled.end());
        CHECK(moments == networks::moments(inline_sample));
        CHECK(states == networks::states(inline_sample.caption));
        CHECK(sizes == floats{static_cast<float>(inline_sample.original_height),
                              static_cast<float>(inline_sample.original_width),
                              static_cast<float>(inline_sample.crop_top), static_cast<float>(inline_sample.crop_left)});
        CHECK(sample.index == inline_sample.index);
        CHECK(sample.label == inline_sample.label);
        CHECK(sample.caption_dropped == inline_sample.caption_dropped);
        CHECK(sample.flipped == inline_sample.flipped);
        CHECK(sample.refused == inline_sample.refused);
    }
}

} // namespace encoded_tests
