// Everything about a sample is a function of (seed, position).
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/draw.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/io/png.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>
#include <support/check_both.hpp>

namespace {

using namespace pulse::data;

/// A folder of pictures of several shapes; those in `bad` are truncated.
struct picture_files : pulse::test::scratch {
    explicit picture_files(int count, const std::set<int>& bad = {}) {
        for (int i = 0; i != count; ++i) {
            const auto image =
                pulse::test::some_picture(20 + 7 * (i % 5), 24 + 5 * (i % 3), static_cast<unsigned>(i + 1));
            std::string file = i % 2 == 0 ? pulse::io::encode_png(image) : pulse::test::encode_jpeg(image);
            if (bad.contains(i)) { file.resize(file.size() / 2); }
            const std::string name = std::to_string(100 + i);
            pulse::test::put(path / (name + (i % 2 == 0 ? ".png" : ".jpg")), file);
            pulse::test::put(path / (name + ".txt"), "picture " + std::to_string(i));
        }
    }
};

constexpr picture_options all_chance{
    .height = 16, .width = 12, .seed = 5, .random_crop = true, .horizontal_flip = true, .caption_dropout = 0.25};

} // namespace

TEST_CASE("every epoch is a permutation, and another one") {
    CHECK_BOTH(index_at(1, 4, 3, false) == 1);
    CHECK_BOTH(index_at(1, 4, 3, false, 2) == 0);
    for (const std::uint32_t count : {1U, 2U, 7U, 64U, 1000U}) {
        std::set<std::vector<std::uint32_t>> orders;
        for (std::uint64_t epoch = 0; epoch != 4; ++epoch) {
            std::vector<std::uint32_t> order;
            for (std::uint32_t i = 0; i != count; ++i) { order.push_back(index_at(9, epoch * count + i, count, true)); }
            orders.insert(order);
            // Substitutes follow the epoch's order, which wraps around.
            for (std::uint32_t i = 0; i != count; ++i) {
                CHECK(index_at(9, epoch * count + i, count, true, count - 1) == order[(i + count - 1) % count]);
            }
            std::sort(order.begin(), order.end());
            for (std::uint32_t i = 0; i != count; ++i) { CHECK(order[i] == i); }
        }
        if (count > 7) { CHECK(orders.size() == 4); }
    }
}

TEST_CASE("random choices are uniform, and each kind is independent of the others") {
    constexpr int samples = 20000;
    double flips = 0;
    double top = 0;
    double left = 0;
    double dropped = 0;
    double flip_top = 0;
    double top_left = 0;
    for (std::uint64_t position = 0; position != samples; ++position) {
        const sample_draw draw = draw_at(3, position);
        const double t = draw.top * 0x1p-32 - 0.5;
        const double l = draw.left * 0x1p-32 - 0.5;
        flips += draw.flip ? 1 : 0;
        top += t;
        left += l;
        dropped += draw.caption < 0.1 ? 1 : 0;
        flip_top += draw.flip ? t : -t;
        top_left += t * l;
    }
    const double deviation = 5 / std::sqrt(double{samples}); // five standard deviations of a mean of unit variance
    CHECK(std::abs(flips / samples - 0.5) < deviation * 0.5);
    CHECK(std::abs(top / samples) < deviation * 0.29);
    CHECK(std::abs(left / samples) < deviation * 0.29);
    CHECK(std::abs(dropped / samples - 0.1) < deviation * 0.3);
    CHECK(std::abs(flip_top / samples) < deviation * 0.29);
    CHECK(std::abs(top_left / samples) < deviation * 0.29 * 0.29);
}

TEST_CASE("any rank and a resumed run see the same bits") {
    const picture_files folder{11};
    const captioned_pictures whole{open_pictures(folder.path), all_chance};
    std::vector<picture_sample> run;
    for (std::uint64_t position = 0; position != 33; ++position) { run.push_back(whole.at(position)); }
    for (const std::uint64_t ranks : {2U, 3U}) {
        for (std::uint64_t rank = 0; rank != ranks; ++rank) {
            const captioned_pictures own{open_pictures(folder.path), all_chance};
            for (std::uint64_t position = 33 - 1 - rank; position < 33; position -= ranks) { // backwards to 0
                CHECK(own.at(position) == run[position]);
            }
        }
    }
    std::size_t dropped = 0;
    std::size_t flipped = 0;
    for (const auto& sample : run) {
        dropped += sample.caption_dropped ? 1U : 0U;
        flipped += sample.flipped ? 1U : 0U;
        CHECK(sample.caption == (sample.caption_dropped ? "" : "picture " + std::to_string(sample.index)));
        CHECK(sample.label == -1);
        CHECK(std::all_of(sample.pixels.begin(), sample.pixels.end(), [](float x) { return x >= -1.0F && x <= 1.0F; }));
    }
    CHECK((dropped > 2 && dropped < 16));
    CHECK((flipped > 8 && flipped < 26));
}

TEST_CASE("a sample is the crop that its facts say, mirrored where they say so") {
    const picture_files folder{9};
    const auto index = open_pictures(folder.path);
    std::set<int> tops;
    for (const bool random : {false, true}) {
        picture_options options = all_chance;
        options.random_crop = random;
        const captioned_pictures pictures{index, options};
        for (std::uint64_t position = 0; position != 27; ++position) {
            const picture_sample sample = pictures.at(position);
            auto stored = decode_picture(index.stored_bytes(sample.index, 1 << 20), "x");
            CHECK(sample.original_height == stored.height);
            CHECK(sample.original_width == stored.width);
            // The whole picture mirrored, resized to cover 16 x 12 exactly in one direction, then cropped.
            if (sample.flipped) { stored = upright(stored, 2); }
            const int full_width = std::max(12, static_cast<int>(std::lround(16.0 * stored.width / stored.height)));
            const int full_height =
                full_width > 12 ? 16 : std::max(16, static_cast<int>(std::lround(12.0 * stored.height / stored.width)));
            const auto full = resize(
                stored,
                {.width = full_width, .height = full_height, .crop_width = full_width, .crop_height = full_height});
            REQUIRE(sample.crop_top >= 0);
            REQUIRE(sample.crop_left >= 0);
            REQUIRE(sample.crop_top + 16 <= full_height);
            REQUIRE(sample.crop_left + 12 <= full_width);
            if (!random) {
                CHECK(sample.crop_top == (full_height - 16) / 2);
                CHECK(sample.crop_left == (full_width - 12) / 2);
            }
            tops.insert(sample.crop_top * 100 + sample.crop_left);
            int wrong = 0;
            for (int y = 0; y != 16; ++y) {
                for (int x = 0; x != 12; ++x) {
                    for (int k = 0; k != 3; ++k) {
                        const auto from = static_cast<std::size_t>(
                            ((y + sample.crop_top) * full_width + x + sample.crop_left) * 3 + k);
                        const float value = sample.pixels[static_cast<std::size_t>((y * 12 + x) * 3 + k)];
                        // Mirroring swaps two equal weights, so their sum may round differently.
                        wrong += std::abs(std::lround((value + 1.0F) * 127.5F) - full.pixels[from]) >
                                         (sample.flipped ? 1 : 0)
                                     ? 1
                                     : 0;
                    }
                }
            }
            CHECK(wrong == 0);
        }
    }
    CHECK(tops.size() > 6);
}

TEST_CASE("one channel is the brightness") {
    const picture_files folder{2};
    picture_options options = all_chance;
    const captioned_pictures colours{open_pictures(folder.path), options};
    options.channels = 1;
    const captioned_pictures grey{open_pictures(folder.path), options};
    for (std::uint64_t position = 0; position != 4; ++position) {
        const auto a = colours.at(position).pixels;
        const auto b = grey.at(position).pixels;
        REQUIRE(b.size() * 3 == a.size());
        for (std::size_t i = 0; i != b.size(); ++i) {
            const float expected = 0.299F * a[3 * i] + 0.587F * a[3 * i + 1] + 0.114F * a[3 * i + 2];
            CHECK(std::abs(b[i] - expected) < 2.01F / 127.5F);
        }
    }
}

TEST_CASE("a bad picture stops with its name, or the next of its epoch stands in its place") {
    const std::set<int> bad{1, 4, 5};
    const picture_files folder{9, bad};
    picture_options options = all_chance;
    const captioned_pictures strict{open_pictures(folder.path), options};
    options.on_bad_picture = bad_picture::skip;
    const captioned_pictures lenient{open_pictures(folder.path), options};
    std::size_t refused = 0;
    for (std::uint64_t position = 0; position != 27; ++position) {
        const std::uint32_t here = index_at(5, position, 9, true);
        const auto sample = lenient.at(position);
        CHECK_FALSE(bad.contains(static_cast<int>(sample.index)));
        refused += sample.refused.size();
        const auto caption_of = [](const picture_sample& of) {
            return picture_sample{.caption = of.caption,
                                  .label = of.label,
                                  .index = of.index,
                                  .caption_dropped = of.caption_dropped,
                                  .refused = of.refused};
        };
        CHECK(lenient.caption_at(position) == caption_of(sample));
        CHECK(strict.caption_at(position).index == here); // the picture is not read
        if (!bad.contains(static_cast<int>(here))) {
            CHECK(sample == strict.at(position));
            CHECK(strict.caption_at(position) == caption_of(sample));
            continue;
        }
        REQUIRE_FALSE(sample.refused.empty());
        const auto after = static_cast<std::uint32_t>(sample.refused.size());
        CHECK(sample.index == index_at(5, position, 9, true, after));
        std::string stopped;
        try {
            (void)strict.at(position);
        } catch (const pulse::input_error& fault) { stopped = fault.what(); }
        CHECK(stopped == sample.refused.front());
        CHECK(stopped.find(std::to_string(100 + here)) != std::string::npos);
    }
    CHECK(refused >= 9);

    const picture_files none{2, {0, 1}};
    const captioned_pictures hopeless{open_pictures(none.path), options};
    CHECK_THROWS_AS((void)hopeless.at(0), pulse::input_error);
}

TEST_CASE("options out of range, and pictures too narrow, are refused") {
    const picture_files folder{1};
    const auto refusal = [&](const picture_options& options) -> std::string {
        try {
            (void)captioned_pictures{open_pictures(folder.path), options}.at(0);
        } catch (const pulse::input_error& fault) { return fault.what(); }
        return "taken";
    };
    CHECK(refusal({.height = 4, .width = 4}) == "taken");
    CHECK(refusal({.height = 0, .width = 4}) == "pictures: height and width must be 1 to 32768");
    CHECK(refusal({.height = 4, .width = 4, .channels = 2}) == "pictures: channels must be 1 or 3");
    CHECK(refusal({.height = 4, .width = 4, .caption_dropout = NAN}) == "pictures: the caption dropout must be 0 to 1");
    pulse::io::picture line{.width = 40000, .height = 1, .channels = 3};
    line.pixels.resize(120000);
    pulse::io::write_png(folder.path / "100.png", line);
    CHECK(refusal({.height = 512, .width = 512}).find("100.png': 40000 x 1 pixels are too narrow to cover 512 x 512") !=
          std::string::npos);
}
