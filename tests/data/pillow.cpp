// Decoding and resizing compared with Pillow, which most data sets are loaded with.
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

#include <pulse/core/error.hpp>
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

/// Compares pictures of every form with the Pillow of these packages; returns how many.
int compare_all(const std::string& packages) {
    const pulse::test::scratch folder;
    REQUIRE(pulse::test::run_python(PULSE_TEST_PILLOW, "decode '" + folder.path.string() + "'", packages));
    int seen = 0;
    for (const auto& entry : std::filesystem::directory_iterator{folder.path}) {
        const std::string name = entry.path().filename().string();
        CAPTURE(name);
        if (entry.path().extension() == ".ppm") { continue; }
        const auto image = pulse::data::decode_picture(pulse::io::read_file(entry.path()), name);
        const std::string ending = entry.path().extension().string();
        // Pillow may bring another libjpeg or libwebp, whose lossy decoding rounds differently; so does alpha.
        const bool loss = ending == ".jpg" || (ending == ".webp" && name.find("lossless") == std::string::npos);
        const bool exact = ending == ".gif" || (ending == ".bmp" && name.find("alpha") == std::string::npos);
        CHECK(largest_difference(image, read_ppm(entry.path().string() + ".ppm")) <= (loss ? 3 : exact ? 0 : 1));
        ++seen;
    }
    return seen;
}

} // namespace

TEST_CASE("every form of picture is decoded as Pillow decodes it") {
    if (!pulse::test::python_has("PIL.ImageOps")) { return; }
    CHECK(compare_all({}) >= 286);
}

TEST_CASE("every form of picture is decoded as the newest Pillow decodes it") {
    if (!pulse::test::python_has("PIL.ImageOps", PULSE_TEST_PYTHON_NEWEST_PACKAGES)) { return; }
    CHECK(compare_all(PULSE_TEST_PYTHON_NEWEST_PACKAGES) == 330);
}

TEST_CASE("JPEG that is damaged inside is read as Pillow reads it, and what Pillow refuses is refused") {
    if (!pulse::test::python_has("PIL.ImageOps")) { return; }
    const pulse::test::scratch folder;
    std::minstd_rand draw{5};
    constexpr int files = 300;
    for (int i = 0; i != files; ++i) {
        const auto image = pulse::test::some_picture(61, 43, static_cast<unsigned>(i + 1));
        std::string file = pulse::test::encode_jpeg(
            image, {.progressive = i % 3 == 1, .grey = i % 5 == 1, .restart = i % 2 == 0 ? 5U : 0U});
        const std::size_t scan = file.find("\xFF\xDA") + 14;
        for (unsigned left = draw() % 4; left != 0; --left) {
            file[scan + draw() % (file.size() - scan)] = static_cast<char>(draw() >> 8U);
        }
        if (i % 7 == 3) { file.erase(scan + draw() % (file.size() - scan - 50), 1 + draw() % 40); }
        if (i % 7 == 4) { file.resize(scan + draw() % (file.size() - scan)); }
        pulse::test::put(folder.path / (std::to_string(i) + ".jpg"), file);
    }
    REQUIRE(pulse::test::run_python(PULSE_TEST_PILLOW, "read '" + folder.path.string() + "'"));
    int damaged = 0;
    int refused = 0;
    for (int i = 0; i != files; ++i) {
        CAPTURE(i);
        const std::filesystem::path path = folder.path / (std::to_string(i) + ".jpg");
        bool read = true;
        bool inside = false;
        pulse::io::picture image;
        try {
            image = pulse::data::decode_picture(pulse::io::read_file(path), "x", {}, &inside);
        } catch (const pulse::input_error&) { read = false; }
        CHECK(std::filesystem::exists(path.string() + ".ppm") == read);
        if (read) { CHECK(largest_difference(image, read_ppm(path.string() + ".ppm")) <= 3); }
        damaged += inside ? 1 : 0;
        refused += read ? 0 : 1;
    }
    CHECK(damaged > files / 10);
    CHECK(refused > files / 10);
}

TEST_CASE("damaged GIF, BMP and WebP are read as Pillow reads them or refused, and what Pillow refuses is refused") {
    if (!pulse::test::python_has("PIL.ImageOps", PULSE_TEST_PYTHON_NEWEST_PACKAGES)) { return; }
    const pulse::test::scratch folder;
    REQUIRE(pulse::test::run_python(PULSE_TEST_PILLOW, "damage '" + folder.path.string() + "'",
                                    PULSE_TEST_PYTHON_NEWEST_PACKAGES));
    int same = 0;
    int refused_by_both = 0;
    int refused_alone = 0;
    for (const auto& entry : std::filesystem::directory_iterator{folder.path}) {
        const std::string name = entry.path().filename().string();
        CAPTURE(name);
        if (entry.path().extension() == ".ppm") { continue; }
        const bool pillow_reads = std::filesystem::exists(entry.path().string() + ".ppm");
        try {
            const auto image =
                pulse::data::decode_picture(pulse::io::read_file(entry.path()), name, {.most_pixels = 1 << 22});
            REQUIRE(pillow_reads);
            CHECK(largest_difference(image, read_ppm(entry.path().string() + ".ppm")) <= 1);
            ++same;
        } catch (const pulse::input_error&) { ++(pillow_reads ? refused_alone : refused_by_both); }
    }
    CHECK(same > 150);
    CHECK(refused_by_both > 150);
    CHECK(refused_alone < 20); // an overlong row of a BMP
}

TEST_CASE("resize and crop equal Pillow's BICUBIC bit for bit") {
    if (!pulse::test::python_has("PIL.Image")) { return; }
    std::mt19937_64 engine{1};
    const auto below = [&](int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); };
    for (const auto& [width, height, noise] : {std::array{61, 43, 16}, {200, 7, 100}, {1, 90, 16}, {97, 128, 250}}) {
        const pulse::test::scratch folder;
        auto image = pulse::test::some_picture(width, height, 1, noise);
        if (noise == 250) { // black and white: overshoots are clamped
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
