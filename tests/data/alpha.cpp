// The alpha of captioned pictures gets the same crops and flips as their colours, averaged over squares.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <webp/encode.h>
#include <zlib.h>

#include <pulse/core/error.hpp>
#include <pulse/data/alpha.hpp>
#include <pulse/data/aspect_buckets.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/decode.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/io/png.hpp>
#include <pulse/model/extent.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

namespace {

using namespace pulse::data;
using pulse::extent;

/// `value` in `bytes` bytes, big-endian or little-endian.
std::string big_end(std::size_t value, int bytes) {
    std::string text;
    for (int i = bytes - 1; i >= 0; --i) { text += static_cast<char>(value >> (8 * i) & 0xFFU); }
    return text;
}
std::string little_end(std::size_t value, int bytes) {
    const std::string text = big_end(value, bytes);
    return {text.rbegin(), text.rend()};
}

/// A PNG with 8 bits per sample and any colour type: `samples` are its rows, `chunks` come before them.
std::string png_of_type(int type, int width, int height, const std::vector<std::uint8_t>& samples,
                        const std::vector<std::pair<std::string, std::string>>& chunks = {}) {
    std::string file{"\x89PNG\r\n\x1A\n", 8};
    const auto chunk = [&](const std::string& kind, const std::string& content) {
        const std::string checked = kind + content;
        const auto sum = ::crc32_z(0, reinterpret_cast<const Bytef*>(checked.data()), checked.size());
        file += big_end(content.size(), 4) + checked + big_end(sum, 4);
    };
    chunk("IHDR", big_end(static_cast<std::size_t>(width), 4) + big_end(static_cast<std::size_t>(height), 4) + '\x08' +
                      static_cast<char>(type) + std::string(3, '\0'));
    for (const auto& [kind, content] : chunks) { chunk(kind, content); }
    const std::size_t row = samples.size() / static_cast<std::size_t>(height);
    std::string rows;
    for (std::size_t i = 0; i != samples.size(); ++i) {
        if (i % row == 0) { rows += '\0'; }
        rows += static_cast<char>(samples[i]);
    }
    uLongf size = ::compressBound(rows.size());
    std::string packed(size, '\0');
    REQUIRE(::compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()),
                       rows.size()) == Z_OK);
    chunk("IDAT", packed.substr(0, size));
    chunk("IEND", {});
    return file;
}

/// Alpha that every flip or rotation changes.
std::vector<std::uint8_t> some_alpha(int width, int height) {
    std::vector<std::uint8_t> alpha;
    for (int y = 0; y != height; ++y) {
        for (int x = 0; x != width; ++x) {
            alpha.push_back(static_cast<std::uint8_t>(x * 97 + y * 31 + x * y * 7 + (x > y ? 100 : 0)));
        }
    }
    return alpha;
}

/// The alpha in one file of each kind that PNG has: with colours, with grey, from a palette of 256.
std::array<std::string, 3> pngs_with(const std::vector<std::uint8_t>& alpha, int width, int height) {
    std::array<std::vector<std::uint8_t>, 2> samples;
    for (std::size_t i = 0; i != alpha.size(); ++i) {
        for (std::size_t k = 0; k != 3; ++k) { samples[0].push_back(static_cast<std::uint8_t>(i * (k + 3))); }
        samples[0].push_back(alpha[i]);
        samples[1].insert(samples[1].end(), {static_cast<std::uint8_t>(i * 5), alpha[i]});
    }
    std::string ramp;
    for (int i = 0; i != 256; ++i) { ramp += static_cast<char>(i); }
    return {png_of_type(6, width, height, samples[0]), png_of_type(4, width, height, samples[1]),
            png_of_type(3, width, height, alpha, {{"PLTE", ramp + ramp + ramp}, {"tRNS", ramp}})};
}

captioned_pictures one_picture(const pulse::test::scratch& folder, const std::string& file,
                               const picture_options& options) {
    pulse::test::put(folder.path / "a.png", file);
    pulse::test::put(folder.path / "a.txt", "a");
    return {open_pictures(folder.path), options};
}

/// Means over squares of `side` x `side` pixels; rows have `width` pixels.
std::vector<float> square_means(const std::vector<float>& pixels, int width, int side) {
    std::vector<float> means;
    const int height = static_cast<int>(pixels.size()) / width;
    for (int top = 0; top != height; top += side) {
        for (int left = 0; left != width; left += side) {
            double sum = 0;
            for (int y = top; y != top + side; ++y) {
                for (int x = left; x != left + side; ++x) {
                    sum += static_cast<double>(pixels[static_cast<std::size_t>(y * width + x)]);
                }
            }
            means.push_back(static_cast<float>(sum / (side * side)));
        }
    }
    return means;
}

void check_close(const std::vector<float>& found, const std::vector<float>& wanted, double most = 1e-6) {
    REQUIRE(found.size() == wanted.size());
    for (std::size_t i = 0; i != found.size(); ++i) {
        CHECK(static_cast<double>(found[i]) == doctest::Approx(static_cast<double>(wanted[i])).epsilon(most).scale(1));
    }
}

std::vector<float> as_shares(const std::vector<std::uint8_t>& alpha) {
    std::vector<float> shares;
    for (const std::uint8_t value : alpha) { shares.push_back(static_cast<float>(value) / 255); }
    return shares;
}

constexpr picture_options anywhere{.height = 12, .width = 8, .seed = 5, .random_crop = true, .horizontal_flip = true};

} // namespace

TEST_CASE("alpha is that of the pixels that a sample sees, in means of squares") {
    const std::vector<std::uint8_t> alpha = some_alpha(17, 12); // the height that is seen: nothing is resized
    for (const std::string& file : pngs_with(alpha, 17, 12)) {
        for (const bool chance : {false, true}) {
            const pulse::test::scratch folder;
            picture_options options = anywhere;
            options.random_crop = options.horizontal_flip = chance;
            const captioned_pictures pictures = one_picture(folder, file, options);
            for (std::uint64_t position = 0; position != 30; ++position) {
                const picture_sample seen = pictures.at(position);
                std::vector<float> pixels;
                for (int y = 0; y != 12; ++y) {
                    for (int x = 0; x != 8; ++x) {
                        const int column = seen.flipped ? 16 - seen.crop_left - x : seen.crop_left + x;
                        const auto at = static_cast<std::size_t>((seen.crop_top + y) * 17 + column);
                        pixels.push_back(static_cast<float>(alpha[at]) / 255);
                    }
                }
                CHECK(alpha_of(pictures, 0, position, {12, 8}) == pixels);
                for (const int side : {2, 4}) {
                    check_close(alpha_of(pictures, 0, position, {12 / side, 8 / side}), square_means(pixels, 8, side));
                }
            }
        }
    }
}

TEST_CASE("alpha is resized and turned upright as colours are") {
    for (const auto& [width, height] : {std::array{31, 23}, std::array{12, 40}, std::array{5, 7}}) {
        for (const int orientation : {1, 4, 6}) {
            const std::vector<std::uint8_t> alpha = some_alpha(width, height);
            const std::vector<std::pair<std::string, std::string>> exif{{"eXIf", pulse::test::exif_with(orientation)}};
            std::vector<std::uint8_t> samples;
            for (const std::uint8_t value : alpha) { samples.insert(samples.end(), {90, value}); }
            const pulse::test::scratch folders[2];
            const captioned_pictures pictures =
                one_picture(folders[0], png_of_type(4, width, height, samples, exif), anywhere);
            // The same values as grey.
            picture_options grey = anywhere;
            grey.channels = 1;
            const captioned_pictures same = one_picture(folders[1], png_of_type(0, width, height, alpha, exif), grey);
            for (std::uint64_t position = 0; position != 20; ++position) {
                std::vector<float> pixels = same.at(position).pixels;
                for (float& value : pixels) { value = (value + 1) / 2; }
                check_close(alpha_of(pictures, 0, position, {6, 4}), square_means(pixels, 8, 2));
            }
        }
    }
}

TEST_CASE("pictures without alpha are seen wholly, and so are opaque ones") {
    const auto colours = pulse::test::some_picture(31, 23);
    const std::vector<std::uint8_t> opaque(31 * 23, 255);
    std::vector<std::string> files{pulse::io::encode_png(colours), pulse::test::encode_jpeg(colours),
                                   pulse::test::encode_webp(colours)};
    for (const std::string& file : pngs_with(opaque, 31, 23)) { files.push_back(file); }
    for (const std::string& file : files) {
        const pulse::test::scratch folder;
        const captioned_pictures pictures = one_picture(folder, file, anywhere);
        CHECK(alpha_of(pictures, 0, 3, {3, 2}) == std::vector<float>(6, 1.0F));
        CHECK(alpha_of(pictures, 0, 3, {12, 8}) == std::vector<float>(96, 1.0F));
    }
}

TEST_CASE("alpha is read of WebP, GIF and BMP, too") {
    const std::vector<std::uint8_t> alpha = some_alpha(8, 12);
    std::vector<std::uint8_t> colours;
    std::string bgra;
    for (std::size_t i = 0; i != alpha.size(); ++i) {
        colours.insert(colours.end(), {9, static_cast<std::uint8_t>(i), 7, alpha[i]});
        const std::size_t from_below = (11 - i / 8) * 8 + i % 8;
        bgra += std::string{"\1\2\3"} + static_cast<char>(alpha[from_below]);
    }
    std::uint8_t* bytes = nullptr;
    const std::size_t size = ::WebPEncodeLosslessRGBA(colours.data(), 8, 12, 8 * 4, &bytes);
    const std::string webp(reinterpret_cast<const char*>(bytes), size);
    ::WebPFree(bytes);
    const std::string bmp = "BM" + little_end(0, 8) + little_end(14 + 56, 4) + little_end(56, 4) + little_end(8, 4) +
                            little_end(12, 4) + little_end(1, 2) + little_end(32, 2) + little_end(3, 4) +
                            std::string(20, '\0') + little_end(0xFF0000, 4) + little_end(0xFF00, 4) +
                            little_end(0xFF, 4) + little_end(0xFF000000, 4) + bgra;
    for (const std::string& file : {webp, bmp}) {
        const pulse::test::scratch folder;
        picture_options options = anywhere;
        options.horizontal_flip = false;
        const captioned_pictures pictures = one_picture(folder, file, options);
        CHECK(alpha_of(pictures, 0, 0, {12, 8}) == as_shares(alpha));
    }

    // 3 x 2 samples of 2 bits, each after a clear code; sample 2 is transparent, as is the canvas around them.
    const std::array<unsigned, 6> samples{0, 2, 1, 2, 3, 0};
    std::vector<unsigned> bits;
    for (const unsigned sample : samples) {
        for (const unsigned code : {4U, sample}) {
            for (unsigned bit = 0; bit != 3; ++bit) { bits.push_back(code >> bit & 1U); }
        }
    }
    std::string data(bits.size() / 8 + 1, '\0');
    for (std::size_t i = 0; i != bits.size(); ++i) {
        data[i / 8] = static_cast<char>(static_cast<unsigned char>(data[i / 8]) | bits[i] << i % 8);
    }
    const auto gif = [&](bool transparent) {
        return "GIF89a" + little_end(4, 2) + little_end(2, 2) + '\x81' + std::string(2, '\0') +
               std::string("abcdefghijkl") + "!\xF9\x04" + static_cast<char>(transparent) + little_end(0, 2) + '\2' +
               '\0' + ',' + little_end(1, 2) + little_end(0, 2) + little_end(3, 2) + little_end(2, 2) + '\0' + '\2' +
               static_cast<char>(data.size()) + data + '\0' + ';';
    };
    const auto seen = decode_alpha(gif(true), "x");
    REQUIRE(seen);
    CHECK(seen->width == 4);
    CHECK(seen->pixels == std::vector<std::uint8_t>{0, 255, 0, 255, 0, 0, 255, 255});
    CHECK(decode_picture(gif(true), "x").pixels[3] == 'a');
    CHECK_FALSE(decode_alpha(gif(false), "x"));
}

TEST_CASE("alpha is seen in the size of its picture's bucket") {
    const pulse::test::scratch folder;
    const std::array<extent, 2> sizes{{{4, 12}, {8, 6}}};
    for (std::size_t i = 0; i != 2; ++i) {
        const std::string name(1, static_cast<char>('a' + i));
        const auto& [height, width] = sizes[i];
        pulse::test::put(folder.path / (name + ".png"), pngs_with(some_alpha(width, height), width, height)[i]);
        pulse::test::put(folder.path / (name + ".txt"), "a");
    }
    const captioned_pictures pictures{
        open_pictures(folder.path), {}, {.sizes = {sizes.begin(), sizes.end()}, .of_picture = {0, 1}}};
    for (std::uint32_t i = 0; i != 2; ++i) {
        const auto& [height, width] = sizes[i];
        check_close(alpha_of(pictures, i, 0, {height / 2, width / 2}),
                    square_means(as_shares(some_alpha(width, height)), width, 2));
    }
}

TEST_CASE("a size that does not divide the picture's is wrong use, a picture that cannot be read is named") {
    const pulse::test::scratch folder;
    const std::string file = pngs_with(some_alpha(17, 12), 17, 12)[0];
    const captioned_pictures pictures = one_picture(folder, file, anywhere);
    for (const extent wrong : {extent{0, 0}, extent{5, 4}, extent{6, 8}, extent{24, 16}, extent{-12, -8}}) {
        CHECK_THROWS_AS((void)alpha_of(pictures, 0, 0, wrong), pulse::error);
    }
    const std::string name = '\'' + (folder.path / "a.png").string() + "': ";
    const auto refused = [&](const std::string& bytes) {
        pulse::test::put(folder.path / "a.png", bytes);
        try {
            (void)alpha_of(pictures, 0, 0, {6, 4});
        } catch (const pulse::input_error& fault) { return std::string{fault.what()}; }
        return std::string{"none"};
    };
    CHECK(refused(file.substr(0, 80)).starts_with(name + "damaged PNG: "));
    CHECK(refused("no picture") == name + "neither JPEG, PNG, WebP, GIF nor BMP");
}
