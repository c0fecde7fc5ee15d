#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <zlib.h>

#include <doctest/doctest.h>

#include <pulse_train/idx.hpp>
#include <pulse/core/error.hpp>

#include <io/scratch.hpp>
#include <support/skip.hpp>

namespace {

using namespace pulse_train;
using pulse::test::put;
using pulse::test::scratch;
namespace fs = std::filesystem;

std::string word(std::uint32_t value) {
    std::string text;
    for (int shift = 24; shift >= 0; shift -= 8) {
        text += static_cast<char>(value >> static_cast<unsigned>(shift) & 0xFFU);
    }
    return text;
}

/// An IDX file written from the format's description.
std::string idx_text(const idx_images& images) {
    return word(0x803) + word(static_cast<std::uint32_t>(images.count)) +
           word(static_cast<std::uint32_t>(images.rows)) + word(static_cast<std::uint32_t>(images.columns)) +
           std::string{images.pixels.begin(), images.pixels.end()};
}

std::string gzipped(const std::string& text, const fs::path& folder) {
    const fs::path path = folder / "packed.gz";
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return pulse::test::bytes_of(path);
}

idx_images random_images(std::mt19937_64& engine) {
    idx_images images{.count = static_cast<int>(1 + engine() % 9),
                      .rows = static_cast<int>(1 + engine() % 30),
                      .columns = static_cast<int>(1 + engine() % 30)};
    images.pixels.resize(static_cast<std::size_t>(images.count * images.rows * images.columns));
    for (auto& pixel : images.pixels) { pixel = static_cast<std::uint8_t>(engine() % 7 * 31); }
    return images;
}

} // namespace

TEST_CASE("images and labels come back from plain and compressed files") {
    const scratch folder;
    std::mt19937_64 engine{1};
    for (int round = 0; round != 20; ++round) {
        const idx_images images = random_images(engine);
        const std::string text = idx_text(images);
        put(folder.path / "plain", text);
        CHECK(read_idx_images(folder.path / "plain") == images);
        put(folder.path / "packed", gzipped(text, folder.path));
        CHECK(read_idx_images(folder.path / "packed") == images);
        // Several gzip streams in one file are read as one.
        put(folder.path / "two", gzipped(text.substr(0, 11), folder.path) + gzipped(text.substr(11), folder.path));
        CHECK(read_idx_images(folder.path / "two") == images);

        const std::string labels =
            word(0x801) + word(static_cast<std::uint32_t>(images.pixels.size())) + text.substr(16);
        put(folder.path / "labels", labels);
        CHECK(read_idx_labels(folder.path / "labels") == images.pixels);
    }
}

TEST_CASE("every wrong thing is named with its file") {
    const scratch folder;
    const fs::path path = folder.path / "some-idx";
    const auto refused = [&](const std::string& bytes, const char* text) {
        put(path, bytes);
        CHECK_THROWS_WITH_AS(static_cast<void>(read_idx_images(path)), doctest::Contains(text), pulse::input_error);
        CHECK_THROWS_WITH_AS(static_cast<void>(read_idx_images(path)), doctest::Contains("some-idx"),
                             pulse::input_error);
    };
    const std::string header = word(0x803) + word(2) + word(3) + word(1);
    refused("", "magic number");
    refused(word(0x801) + word(1) + "x", "not an IDX file of images: its magic number is 2049, not 2051");
    refused("hello, this is text", "magic number is");
    refused(header.substr(0, 9), "ends before the number of rows");
    refused(header + "12345", "promises 6 bytes of data, but it has 5");
    refused(header + "1234567", "has bytes after the 6");
    refused(word(0x803) + word(0) + word(3) + word(1), "the number of images must be from 1 to 2147483647, not 0");
    refused(word(0x803) + word(2) + word(0) + word(1), "the number of rows must be from 1 to 2147483647, not 0");
    refused(word(0x803) + word(2) + word(3) + word(0), "the number of columns must be from 1 to 2147483647, not 0");
    refused(word(0x803) + word(0xFFFFFFFFU) + word(3) + word(1),
            "the number of images must be from 1 to 2147483647, not 4294967295");
    // Headers that promise exabytes are refused before any memory is allocated.
    refused(word(0x803) + word(0x7FFFFFFFU) + word(0x3FFFU) + word(0x3FFFU) + "abc", "is cut");
    refused(word(0x803) + word(0x7FFFFFFFU) + word(0x7FFFFFFFU) + word(0x7FFFFFFFU), "are too large");
    const std::string packed = gzipped(header + "123456", folder.path);
    refused(packed.substr(0, packed.size() - 3), "ends too early");
    refused(packed + "tail", "is damaged");
    refused(packed.substr(0, 2), "ends too early");
    std::string checksum = packed;
    checksum[checksum.size() - 6] ^= 1;
    refused(checksum, "is damaged");

    put(path, header + "123456");
    CHECK_THROWS_WITH_AS(static_cast<void>(read_idx_labels(path)), doctest::Contains("not an IDX file of labels"),
                         pulse::input_error);
    CHECK_THROWS_WITH_AS(static_cast<void>(read_idx_images(folder.path / "absent")), doctest::Contains("absent"),
                         pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(read_idx_images(folder.path)), pulse::input_error);
}

TEST_CASE("a damaged file gives an error or a valid result, never anything else") {
    const scratch folder;
    std::mt19937_64 engine{2};
    int refused = 0;
    for (int round = 0; round != 1500; ++round) {
        std::string bytes = idx_text(random_images(engine));
        if (round % 2 == 0) { bytes = gzipped(bytes, folder.path); }
        if (round % 3 == 0) {
            bytes.resize(engine() % bytes.size());
        } else {
            const std::size_t reach = round % 3 == 1 ? std::min<std::size_t>(bytes.size(), 24) : bytes.size();
            bytes[engine() % reach] = static_cast<char>(engine());
        }
        put(folder.path / "bad", bytes);
        try {
            const auto images = read_idx_images(folder.path / "bad");
            CHECK(images.pixels.size() == static_cast<std::size_t>(images.count) *
                                              static_cast<std::size_t>(images.rows) *
                                              static_cast<std::size_t>(images.columns));
        } catch (const pulse::input_error&) { ++refused; }
    }
    CHECK(refused > 700);
}

TEST_CASE("the plain file is preferred to the compressed one") {
    const scratch folder;
    CHECK_THROWS_WITH_AS(static_cast<void>(find_idx(folder.path, "x")), doctest::Contains("x.gz"), pulse::input_error);
    put(folder.path / "x.gz", "1");
    CHECK(find_idx(folder.path, "x") == folder.path / "x.gz");
    put(folder.path / "x", "1");
    CHECK(find_idx(folder.path, "x") == folder.path / "x");
}

TEST_CASE("Debian's Fashion-MNIST is read") {
    const fs::path folder = "/usr/share/datasets/fashion-mnist";
    if (!fs::exists(folder)) {
        pulse::test::skip("dataset-fashion-mnist is not installed");
        return;
    }
    const auto images = read_idx_images(find_idx(folder, "t10k-images-idx3-ubyte"));
    CHECK(images.count == 10'000);
    CHECK(images.rows == 28);
    CHECK(images.columns == 28);
    const auto labels = read_idx_labels(find_idx(folder, "t10k-labels-idx1-ubyte"));
    REQUIRE(labels.size() == 10'000);
    std::vector<int> per_class(10);
    for (const auto label : labels) {
        REQUIRE(label < 10);
        ++per_class[label];
    }
    for (const int count : per_class) { CHECK(count == 1000); }
}
