// Headers of all pictures are checked before any picture is decoded.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/check_pictures.hpp>
#include <pulse/data/decode.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/io/png.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

namespace {

using namespace pulse::data;
using pulse::test::put;
using pulse::test::some_picture;

/// A JPEG whose header is longer than the part that is read first.
std::string jpeg_behind(std::size_t bytes) {
    std::string file = pulse::test::encode_jpeg(some_picture(30, 20));
    for (; bytes != 0; bytes -= std::min<std::size_t>(bytes, 60000)) {
        const std::size_t length = std::min<std::size_t>(bytes, 60000) + 2;
        file.insert(2, std::string{"\xFF\xED"} + static_cast<char>(length >> 8U) + static_cast<char>(length & 0xFFU) +
                           std::string(length - 2, 'x'));
    }
    return file;
}

std::string name_of(std::size_t i) { return std::to_string(1000 + i) + ".jpg"; }

} // namespace

TEST_CASE("headers of pictures in files and in shards say sizes and formats, and which are bad, whatever the threads") {
    const std::vector<std::string> files{pulse::test::encode_jpeg(some_picture(40, 30)),
                                         pulse::io::encode_png(some_picture(7, 9)),
                                         pulse::test::encode_webp(some_picture(50, 40)),
                                         "no picture",
                                         jpeg_behind(200000),
                                         jpeg_behind(2000000),
                                         "",
                                         pulse::test::encode_jpeg(some_picture(300, 300)),
                                         pulse::io::encode_png(some_picture(7, 9)).substr(0, 30),
                                         pulse::test::encode_jpeg(some_picture(40, 30)).substr(0, 700)};
    const picture_limits limits{.most_pixels = 300 * 300 - 1};
    const pulse::test::scratch folder;
    const pulse::test::scratch shards;
    std::string shard;
    constexpr std::size_t rounds = 20;
    for (std::size_t i = 0; i != rounds * files.size(); ++i) {
        put(folder.path / name_of(i), files[i % files.size()]);
        put(folder.path / (std::to_string(1000 + i) + ".txt"), "a");
        shard += pulse::test::tar_file(name_of(i), files[i % files.size()]) +
                 pulse::test::tar_file(std::to_string(1000 + i) + ".txt", "a");
    }
    put(shards.path / "s.tar", shard + pulse::test::tar_end());
    for (const auto& path : {folder.path, shards.path}) {
        const picture_index index = open_pictures(path);
        for (const int threads : {1, 2, 5}) {
            const pictures_check found = check_pictures(index, threads, limits);
            CHECK(found.pictures == rounds * files.size());
            CHECK(found.least == picture_size{7, 9});
            CHECK(found.most == picture_size{50, 40});
            CHECK(found.text() == "120 of 7x9 to 50x40; 80 JPEG, 20 PNG, 20 WebP");
            REQUIRE(found.bad.size() == 4 * rounds);
            for (std::size_t i = 0; i != found.bad.size(); ++i) {
                const std::size_t which = i / 4 * files.size() + std::vector<std::size_t>{3, 6, 7, 8}[i % 4];
                CHECK(found.bad[i].index == which);
                // The header check and the decoder refuse with the same words.
                std::string refusal;
                try {
                    (void)decode_picture(index.stored_bytes(static_cast<std::uint32_t>(which), 1U << 30U),
                                         index.name(static_cast<std::uint32_t>(which)), limits);
                } catch (const pulse::input_error& fault) { refusal = fault.what(); }
                CHECK(found.bad[i].why == refusal);
                CHECK(found.bad[i].why.find(name_of(which)) != std::string::npos);
            }
        }
    }
    const picture_limits short_files{.most_file_bytes = 100000};
    for (const auto& path : {folder.path, shards.path}) {
        const picture_index index = open_pictures(path);
        const pictures_check found = check_pictures(index, 2, short_files);
        CHECK(found.bad.size() == 5 * rounds);
        std::size_t too_long = 0;
        for (const auto& one : found.bad) {
            if (one.why.find("but at most 100000 are read") == std::string::npos) { continue; }
            ++too_long;
            CHECK(one.why.starts_with(index.name(one.index)));
        }
        CHECK(too_long == 2 * rounds);
    }
}
