#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <png.h>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/decode.hpp>
#include <pulse/data/exif.hpp>
#include <pulse/io/png.hpp>

#include <data/pictures.hpp>

namespace {

using pulse::data::decode_picture;
using pulse::test::some_picture;

std::string refusal_of_picture(const std::string& bytes, const pulse::data::picture_limits& limits = {}) {
    try {
        (void)decode_picture(bytes, "'x'", limits);
    } catch (const pulse::input_error& fault) { return fault.what(); }
    return "decoded";
}

/// A PNG written by libpng from raw rows of any type and depth; the tRNS chunk makes `hide` transparent.
std::string written_png(int width, int height, int depth, int type, bool interlaced, std::vector<std::uint8_t> rows,
                        const png_color_16* hide = nullptr) {
    std::string out;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(
        png, &out,
        [](png_structp to, png_bytep data, std::size_t count) {
            static_cast<std::string*>(png_get_io_ptr(to))->append(reinterpret_cast<const char*>(data), count);
        },
        nullptr);
    png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), depth, type,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    std::vector<png_color> palette;
    std::vector<png_byte> alphas;
    for (int i = 0; type == PNG_COLOR_TYPE_PALETTE && i != 1 << depth; ++i) {
        palette.push_back({static_cast<png_byte>(i * 3), static_cast<png_byte>(255 - i), static_cast<png_byte>(i * 7)});
        alphas.push_back(static_cast<png_byte>(i * 11));
    }
    if (!palette.empty()) {
        png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
        png_set_tRNS(png, info, alphas.data(), static_cast<int>(alphas.size()), nullptr);
    }
    if (hide != nullptr) { png_set_tRNS(png, info, nullptr, 0, hide); }
    png_write_info(png, info);
    std::vector<png_bytep> lines;
    for (int y = 0; y != height; ++y) {
        lines.push_back(rows.data() + rows.size() / static_cast<std::size_t>(height) * static_cast<std::size_t>(y));
    }
    png_write_image(png, lines.data());
    png_write_end(png, nullptr);
    png_destroy_write_struct(&png, &info);
    return out;
}

} // namespace

TEST_CASE("PNG of every colour type and depth, interlaced or not, is its samples in front of white") {
    constexpr int width = 13;
    constexpr int height = 9;
    constexpr std::array<std::array<int, 3>, 5> types{{{PNG_COLOR_TYPE_GRAY, 1, 0},
                                                       {PNG_COLOR_TYPE_RGB, 3, 0},
                                                       {PNG_COLOR_TYPE_PALETTE, 1, 0},
                                                       {PNG_COLOR_TYPE_GRAY_ALPHA, 2, 1},
                                                       {PNG_COLOR_TYPE_RGB_ALPHA, 4, 1}}};
    int forms = 0;
    for (const auto& form : types) {
        const int type = form[0];
        const int samples = form[1];
        const int alpha = form[2];
        for (const int depth : {1, 2, 4, 8, 16}) {
            if ((depth < 8 && samples != 1) || (depth == 16 && type == PNG_COLOR_TYPE_PALETTE)) { continue; }
            for (const int hidden : {0, 1}) {
                if (hidden != 0 && (alpha != 0 || type == PNG_COLOR_TYPE_PALETTE)) { continue; }
                CAPTURE(type);
                CAPTURE(depth);
                CAPTURE(hidden);
                // Deterministic samples, packed as the format requires: big-endian, several to a byte.
                const auto sample = [&](int x, int y, int k) {
                    return static_cast<unsigned>(x * 2731 + y * 7919 + k * 104729 + x * y * 31) & ((1U << depth) - 1U);
                };
                const std::size_t row_bytes = static_cast<std::size_t>((width * samples * depth + 7) / 8);
                std::vector<std::uint8_t> rows(row_bytes * height);
                for (int y = 0; y != height; ++y) {
                    for (int i = 0; i != width * samples; ++i) {
                        for (int bit = 0; bit != depth; ++bit) {
                            const auto place = static_cast<std::size_t>(i * depth + bit);
                            const unsigned set = sample(i / samples, y, i % samples) >> (depth - 1 - bit) & 1U;
                            rows[static_cast<std::size_t>(y) * row_bytes + place / 8] |=
                                static_cast<std::uint8_t>(set << (7 - place % 8));
                        }
                    }
                }
                png_color_16 hide{};
                hide.gray = hide.red = static_cast<png_uint_16>(sample(2, 3, 0));
                hide.green = static_cast<png_uint_16>(sample(2, 3, 1));
                hide.blue = static_cast<png_uint_16>(sample(2, 3, 2));

                const double most = (1U << depth) - 1U;
                int wrong = 0;
                int seen_through = 0;
                const auto plain = decode_picture(
                    written_png(width, height, depth, type, false, rows, hidden != 0 ? &hide : nullptr), "x");
                const auto laced = decode_picture(
                    written_png(width, height, depth, type, true, rows, hidden != 0 ? &hide : nullptr), "x");
                CHECK(plain.pixels == laced.pixels);
                REQUIRE(plain.pixels.size() == static_cast<std::size_t>(width * height * 3));
                for (int y = 0; y != height; ++y) {
                    for (int x = 0; x != width; ++x) {
                        const bool grey = samples < 3;
                        for (int k = 0; k != 3; ++k) {
                            double value = sample(x, y, grey ? 0 : k) / most * 255.0;
                            double opaque = alpha != 0 ? sample(x, y, samples - 1) / most : 1.0;
                            if (type == PNG_COLOR_TYPE_PALETTE) {
                                const auto i = static_cast<int>(sample(x, y, 0));
                                value =
                                    std::array{i * 3 & 255, (255 - i) & 255, i * 7 & 255}[static_cast<std::size_t>(k)];
                                opaque = (i * 11 & 255) / 255.0;
                            }
                            if (hidden != 0 && sample(x, y, 0) == hide.red &&
                                (grey || (sample(x, y, 1) == hide.green && sample(x, y, 2) == hide.blue))) {
                                opaque = 0.0;
                                ++seen_through;
                            }
                            const double expected = value * opaque + 255.0 * (1.0 - opaque);
                            const double found = plain.pixels[static_cast<std::size_t>((y * width + x) * 3 + k)];
                            // Three roundings: colour to 8 bits, alpha to 8 bits, and the blend with white.
                            wrong += std::abs(found - expected) > (depth == 16 ? 1.51 : 0.51) ? 1 : 0;
                        }
                    }
                }
                CHECK(wrong == 0);
                CHECK((seen_through != 0) == (hidden != 0));
                ++forms;
            }
        }
    }
    CHECK(forms == 5 * 2 + 2 * 2 + 4 + 2 + 2);
}

TEST_CASE("all eight orientations of one picture are the same picture upright") {
    const auto image = some_picture(19, 12);
    const auto turned = [&](int orientation) {
        // What a camera held this way stores: each pixel's place by EXIF 2.32, table 6.
        const bool on_side = orientation >= 5;
        pulse::io::picture stored{.width = on_side ? image.height : image.width,
                                  .height = on_side ? image.width : image.height,
                                  .channels = 3,
                                  .pixels = std::vector<std::uint8_t>(image.pixels.size())};
        for (int y = 0; y != image.height; ++y) {
            for (int x = 0; x != image.width; ++x) {
                const int right = image.width - 1 - x;
                const int below = image.height - 1 - y;
                // The 0th row is the visual: top, top, bottom, bottom, left, right, right, left side.
                const int row =
                    std::array{y, y, below, below, x, right, right, x}[static_cast<std::size_t>(orientation - 1)];
                // The 0th column is the visual: left, right, right, left, top, top, bottom, bottom side.
                const int column =
                    std::array{x, right, right, x, y, y, below, below}[static_cast<std::size_t>(orientation - 1)];
                for (int k = 0; k != 3; ++k) {
                    stored.pixels[static_cast<std::size_t>((row * stored.width + column) * 3 + k)] =
                        image.pixels[static_cast<std::size_t>((y * image.width + x) * 3 + k)];
                }
            }
        }
        return stored;
    };
    for (int orientation = 1; orientation <= 8; ++orientation) {
        CAPTURE(orientation);
        const auto stored = turned(orientation);
        CHECK((orientation == 1) == (stored.pixels == image.pixels));
        for (const bool little : {true, false}) {
            const std::string exif = pulse::test::exif_with(orientation, little);
            const auto png = decode_picture(pulse::test::png_with_exif(stored, exif), "png");
            CHECK(png.width == image.width);
            CHECK(png.pixels == image.pixels);
            CHECK(decode_picture(pulse::test::encode_webp(stored, exif), "webp").pixels == image.pixels);
            // A JPEG of the turned picture need not equal the turned JPEG, so the stored picture is turned as proved
            // above.
            const auto without = decode_picture(pulse::test::encode_jpeg(stored), "jpeg");
            const auto with = decode_picture(pulse::test::encode_jpeg(stored, {.exif = exif}), "jpeg");
            CHECK(with.pixels == pulse::data::upright(without, orientation).pixels);
            CHECK(with.width == image.width);
        }
    }
}

TEST_CASE("EXIF data that are damaged say nothing") {
    using pulse::data::exif_orientation;
    const std::string good = pulse::test::exif_with(6);
    const auto of = [](const std::string& text) {
        return exif_orientation({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
    };
    REQUIRE(of(good) == 6);
    for (std::size_t cut = 0; cut != 30; ++cut) { CHECK(of(good.substr(0, cut)) <= 1); }
    CHECK(of("") == 0);
    for (const int wrong : {0, 9, 65535}) { CHECK(of(pulse::test::exif_with(wrong)) == 1); }
    std::minstd_rand engine{3};
    for (int i = 0; i != 3000; ++i) {
        std::string bad = good;
        for (int k = 0; k != 3; ++k) { bad[engine() % bad.size()] = static_cast<char>(engine()); }
        const int orientation = of(bad);
        CHECK((orientation >= 0 && orientation <= 8));
    }
}

TEST_CASE("JPEG of grey, colours and inks, progressive or not, is near what was encoded") {
    const auto image = some_picture(70, 45, 1, 1);
    for (const bool progressive : {false, true}) {
        for (const bool grey : {false, true}) {
            const auto found =
                decode_picture(pulse::test::encode_jpeg(image, {.progressive = progressive, .grey = grey}), "x");
            REQUIRE(found.pixels.size() == image.pixels.size());
            int largest = 0;
            for (std::size_t i = 0; i != found.pixels.size(); ++i) {
                largest = std::max(largest, std::abs(found.pixels[i] - image.pixels[grey ? i / 3 * 3 : i]));
            }
            CHECK(largest < 16);
        }
        // No black ink, stored as 255, leaves the other inks unchanged.
        const auto inks =
            decode_picture(pulse::test::encode_jpeg(image, {.progressive = progressive, .inks = true}), "x");
        int largest = 0;
        for (std::size_t i = 0; i != inks.pixels.size(); ++i) {
            largest = std::max(largest, std::abs(inks.pixels[i] - image.pixels[i]));
        }
        CHECK(largest < 16);
    }
}

TEST_CASE("a picture that is cut anywhere is refused by name in one line") {
    const auto image = some_picture(33, 21);
    for (const std::string& file :
         {pulse::test::encode_jpeg(image), pulse::test::encode_jpeg(image, {.progressive = true}),
          pulse::io::encode_png(image), pulse::test::encode_webp(image)}) {
        REQUIRE(refusal_of_picture(file) == "decoded");
        for (std::size_t bytes = 0; bytes < file.size(); bytes += 1 + bytes / 8) {
            const std::string refusal = refusal_of_picture(file.substr(0, bytes));
            CAPTURE(bytes);
            CHECK(refusal.substr(0, 5) == "'x': ");
            CHECK(refusal.find('\n') == std::string::npos);
        }
    }
    CHECK(refusal_of_picture("") == "'x': the file is empty");
    CHECK(refusal_of_picture("GIF89a") == "'x': the file ends too early");
    CHECK(refusal_of_picture("PK") == "'x': neither JPEG, PNG, WebP, GIF nor BMP");
}

TEST_CASE("absurd sizes are refused before memory is taken") {
    const auto image = some_picture(8, 8);
    const auto patched = [](std::string file, std::size_t at, const std::string& bytes) {
        return file.replace(at, bytes.size(), bytes);
    };
    std::string png = patched(pulse::io::encode_png(image), 16, std::string{"\x40\0\0\0\x40\0\0\0", 8});
    const auto crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(png.data() + 12), 17);
    for (std::size_t i = 0; i != 4; ++i) { png[29 + i] = static_cast<char>(crc >> (24 - 8 * i) & 0xFFU); }
    CHECK(refusal_of_picture(png) ==
          "'x': 1073741824 x 1073741824 pixels exceed the limit of 134217728 in all: make the picture smaller");

    const std::string jpeg = pulse::test::encode_jpeg(image);
    const std::size_t frame = jpeg.find("\xFF\xC0");
    REQUIRE(frame != std::string::npos);
    CHECK(refusal_of_picture(patched(jpeg, frame + 5, "\xFF\xDC\xFF\xDC")) ==
          "'x': 65500 x 65500 pixels exceed the limit of 134217728 in all: make the picture smaller");

    std::string webp = pulse::test::encode_webp(image);
    webp = patched(webp, 21, "\xFF\xFF\xFF\x0F"); // 14 bits each
    CHECK(refusal_of_picture(webp) ==
          "'x': 16384 x 16384 pixels exceed the limit of 134217728 in all: make the picture smaller");

    CHECK(refusal_of_picture(jpeg, {.most_pixels = 64}) == "decoded");
    CHECK(refusal_of_picture(jpeg, {.most_pixels = 63}) ==
          "'x': 8 x 8 pixels exceed the limit of 63 in all: make the picture smaller");
}
