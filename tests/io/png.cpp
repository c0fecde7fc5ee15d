#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

// Another project's reader checks what is written.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#if __has_include(<stb/stb_image.h>)
#include <stb/stb_image.h>
#else
#include <stb_image.h>
#endif
#pragma GCC diagnostic pop

#include <pulse/core/error.hpp>
#include <pulse/io/png.hpp>

#include <io/scratch.hpp>

namespace {

using namespace pulse::io;

picture decoded(const std::string& bytes) {
    picture image;
    const std::unique_ptr<stbi_uc, void (*)(void*)> pixels{
        stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(bytes.data()), static_cast<int>(bytes.size()),
                              &image.width, &image.height, &image.channels, 0),
        stbi_image_free};
    REQUIRE(pixels != nullptr);
    const auto size = static_cast<std::size_t>(image.width * image.height * image.channels);
    image.pixels.assign(pixels.get(), pixels.get() + size);
    return image;
}

} // namespace

TEST_CASE("another reader finds the picture that was written") {
    std::mt19937_64 engine{1};
    const pulse::test::scratch folder;
    for (int round = 0; round != 60; ++round) {
        picture image{.width = static_cast<int>(1 + engine() % 70),
                      .height = static_cast<int>(1 + engine() % 70),
                      .channels = round % 2 == 0 ? 1 : 3};
        image.pixels.resize(static_cast<std::size_t>(image.width * image.height * image.channels));
        for (auto& pixel : image.pixels) { pixel = static_cast<std::uint8_t>(engine() % (round % 3 == 0 ? 256 : 3)); }
        write_png(folder.path / "a.png", image);
        const picture found = decoded(pulse::test::bytes_of(folder.path / "a.png"));
        CHECK(found.width == image.width);
        CHECK(found.height == image.height);
        CHECK(found.channels == image.channels);
        CHECK(found.pixels == image.pixels);
    }
}

TEST_CASE("chunks carry the checksums of the format") {
    // stb_image ignores checksums, so an independent bitwise CRC-32 checks them.
    const std::string file = encode_png({.width = 3, .height = 2, .channels = 1, .pixels = {1, 2, 3, 4, 5, 6}});
    const auto word = [&](std::size_t at) {
        std::uint32_t value = 0;
        for (std::size_t i = 0; i != 4; ++i) { value = value << 8U | static_cast<std::uint8_t>(file[at + i]); }
        return value;
    };
    REQUIRE(file.substr(0, 8) == "\x89PNG\r\n\x1A\n");
    std::size_t at = 8;
    std::string types;
    while (at < file.size()) {
        const std::size_t length = word(at);
        REQUIRE(at + 12 + length <= file.size());
        types += file.substr(at + 4, 4) + " ";
        std::uint32_t crc = 0xFFFFFFFFU;
        for (std::size_t i = at + 4; i != at + 8 + length; ++i) {
            crc ^= static_cast<std::uint8_t>(file[i]);
            for (int bit = 0; bit != 8; ++bit) { crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U); }
        }
        CHECK(word(at + 8 + length) == ~crc);
        at += 12 + length;
    }
    CHECK(types == "IHDR IDAT IEND ");
}

TEST_CASE("a grid shows each image in its place, scaled, on the background") {
    std::mt19937_64 engine{2};
    std::uniform_real_distribution<float> uniform{-1, 1};
    for (int round = 0; round != 30; ++round) {
        const int h = static_cast<int>(1 + engine() % 6);
        const int w = static_cast<int>(1 + engine() % 6);
        const int c = round % 2 == 0 ? 1 : 3;
        const int count = static_cast<int>(1 + engine() % 11);
        const grid_options options{.columns = static_cast<int>(1 + engine() % 5),
                                   .scale = static_cast<int>(1 + engine() % 3),
                                   .gap = static_cast<int>(engine() % 3),
                                   .background = 77};
        std::vector<float> images(static_cast<std::size_t>(count * h * w * c));
        for (float& x : images) { x = uniform(engine); }
        const picture grid = image_grid(images, h, w, c, options);
        const int columns = std::min(count, options.columns);
        const int rows = (count + columns - 1) / columns;
        REQUIRE(grid.width == columns * w * options.scale + (columns + 1) * options.gap);
        REQUIRE(grid.height == rows * h * options.scale + (rows + 1) * options.gap);
        std::size_t painted = 0;
        for (int n = 0; n != count; ++n) {
            for (int y = 0; y != h * options.scale; ++y) {
                for (int x = 0; x != w * options.scale; ++x) {
                    for (int k = 0; k != c; ++k) {
                        const int py = n / columns * (h * options.scale + options.gap) + options.gap + y;
                        const int px = n % columns * (w * options.scale + options.gap) + options.gap + x;
                        const float value = images[static_cast<std::size_t>(
                            ((n * h + y / options.scale) * w + x / options.scale) * c + k)];
                        const auto got = grid.pixels[static_cast<std::size_t>((py * grid.width + px) * c + k)];
                        CHECK(std::abs(static_cast<double>(got) - (static_cast<double>(value) + 1) * 127.5) <= 0.51);
                        ++painted;
                    }
                }
            }
        }
        std::size_t background = 0;
        for (const auto pixel : grid.pixels) { background += pixel == 77 ? 1U : 0U; }
        CHECK(background >= grid.pixels.size() - painted);
    }
}

TEST_CASE("values out of range are black or white, never wrapped") {
    const float huge = std::numeric_limits<float>::infinity();
    const picture grid = image_grid(std::vector<float>{-5, 5, huge, -huge, std::nanf(""), 0}, 1, 6, 1,
                                    {.columns = 1, .scale = 1, .gap = 0});
    CHECK(grid.pixels == std::vector<std::uint8_t>{0, 255, 255, 0, 0, 128});
}

TEST_CASE("pictures that do not fit are refused") {
    CHECK_THROWS_AS(static_cast<void>(encode_png({.width = 2, .height = 2, .channels = 1, .pixels = {1, 2, 3}})),
                    pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(encode_png({.width = 1, .height = 1, .channels = 2, .pixels = {1, 2}})),
                    pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(encode_png({})), pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(image_grid(std::vector<float>(5), 2, 2, 1)), pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(image_grid({}, 2, 2, 1)), pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(image_grid(std::vector<float>(4), 2, 2, 1, {.columns = 0})), pulse::input_error);
}
