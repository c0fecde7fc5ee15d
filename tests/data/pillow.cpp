// Decoding and resizing against Pillow, which most data sets meet first.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/data/decode.hpp>
#include <pulse/data/resize.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/png.hpp>

#include <data/pictures.hpp>
#include <data/python.hpp>

namespace {

pulse::io::picture read_ppm(const std::filesystem::path& path) {
    std::ifstream in{path, std::ios::binary};
    std::string magic;
    int most = 0;
    pulse::io::picture image{.channels = 3};
    in >> magic >> image.width >> image.height >> most;
    in.ignore(1);
    image.pixels.resize(static_cast<std::size_t>(image.width * image.height * 3));
    in.read(reinterpret_cast<char*>(image.pixels.data()), static_cast<std::streamsize>(image.pixels.size()));
    REQUIRE(in.good());
    REQUIRE(magic == "P6");
    return image;
}

int largest_difference(const pulse::io::picture& a, const pulse::io::picture& b) {
    if (a.width != b.width || a.height != b.height || a.channels != b.channels) { return 256; }
    int largest = 0;
    for (std::size_t i = 0; i != a.pixels.size(); ++i) {
        largest = std::max(largest, std::abs(a.pixels[i] - b.pixels[i]));
    }
    return largest;
}

} // namespace

TEST_CASE("every form of picture is decoded as Pillow decodes it") {
    if (!pulse::test::python_has("PIL.ImageOps")) { return; }
    const pulse::test::scratch folder;
    REQUIRE(pulse::test::run_python(PULSE_TEST_PILLOW, "decode '" + folder.path.string() + "'"));
    int seen = 0;
    for (const auto& entry : std::filesystem::directory_iterator{folder.path}) {
        const std::string name = entry.path().filename().string();
        CAPTURE(name);
        if (entry.path().extension() == ".ppm") { continue; }
        const auto image = pulse::data::decode_picture(pulse::io::read_file(entry.path()), name);
        // Pillow may bring another libjpeg and libwebp, whose loss is rounded otherwise.
        const bool loss = entry.path().extension() == ".jpg" ||
                          (name.find("webp") != std::string::npos && name.find("lossless") == std::string::npos);
        CHECK(largest_difference(image, read_ppm(entry.path().string() + ".ppm")) <= (loss ? 3 : 1));
        ++seen;
    }
    CHECK(seen == 12 + 6 + 4 + 24);
}

TEST_CASE("resize and crop equal Pillow's BICUBIC bit for bit") {
    if (!pulse::test::python_has("PIL.Image")) { return; }
    std::mt19937_64 engine{1};
    const auto below = [&](int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); };
    for (const auto& [width, height, noise] : {std::array{61, 43, 16}, {200, 7, 100}, {1, 90, 16}, {97, 128, 250}}) {
        const pulse::test::scratch folder;
        auto image = pulse::test::some_picture(width, height, 1, noise);
        if (noise == 250) { // black and white: what overshoots is cut
            for (auto& sample : image.pixels) { sample = sample % 2 == 0 ? 0 : 255; }
        }
        pulse::io::write_png(folder.path / "a.png", image);
        std::vector<pulse::data::resized_part> parts;
        std::ofstream sizes{folder.path / "sizes.txt"};
        for (int i = 0; i != 25; ++i) {
            pulse::data::resized_part part{.width = 1 + below(150), .height = 1 + below(150)};
            if (i == 0) { part = {.width = width, .height = height}; }
            part.crop_width = 1 + below(part.width);
            part.crop_height = 1 + below(part.height);
            part.left = below(part.width - part.crop_width + 1);
            part.top = below(part.height - part.crop_height + 1);
            sizes << part.width << ' ' << part.height << ' ' << part.left << ' ' << part.top << ' ' << part.crop_width
                  << ' ' << part.crop_height << '\n';
            parts.push_back(part);
        }
        sizes.close();
        REQUIRE(pulse::test::run_python(PULSE_TEST_PILLOW, "resize '" + folder.path.string() + "'"));
        for (std::size_t i = 0; i != parts.size(); ++i) {
            const auto expected = read_ppm(folder.path / (std::to_string(i) + ".ppm"));
            CHECK(largest_difference(pulse::data::resize(image, parts[i]), expected) == 0);
        }
    }
}
