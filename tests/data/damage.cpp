// Damage causes one clear error line, or is skipped if that was requested.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/io/png.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

namespace {

using namespace pulse::data;
using pulse::test::put;
using pulse::test::tar_end;
using pulse::test::tar_file;

constexpr picture_options small{.height = 8, .width = 8, .shuffle = false, .limits = {.most_pixels = 1 << 16}};

/// The same bytes, damaged in one of several ways.
std::string damaged(std::string bytes, std::minstd_rand& draw) {
    const auto place = [&] { return draw() % bytes.size(); };
    switch (draw() % 6) {
    case 0: bytes.resize(place()); break;
    case 1:
        for (unsigned left = 1 + draw() % 8; left != 0; --left) { bytes[place()] = static_cast<char>(draw() >> 8U); }
        break;
    case 2: bytes[place()] = static_cast<char>(0xFF); break;
    case 3: bytes.erase(place(), 1 + draw() % 64); break;
    case 4: {
        const std::size_t from = place();
        bytes.insert(place(), bytes.substr(from, 1 + draw() % 64));
        break;
    }
    default: {
        const std::size_t at = draw() % std::min<std::size_t>(bytes.size(), 64); // the header
        bytes[at] = static_cast<char>(draw() >> 8U);
    }
    }
    return bytes;
}

/// Whether the text is one line that begins with the folder and names the culprit in it.
bool is_clear(const std::string& text, const std::filesystem::path& folder) {
    return text.find('\'' + folder.string()) == 0 && text.size() > folder.string().size() + 12 && text.size() < 700 &&
           std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

struct outcome {
    int read = 0;
    int refused = 0;
    int unclear = 0;
    int skipped = 0;
    int unskipped = 0;
};

/// Reads both samples of a folder, the first of which may be damaged, strictly and leniently.
void read_folder(const std::filesystem::path& folder, outcome& seen) {
    picture_index index;
    try {
        index = open_pictures(folder);
    } catch (const pulse::input_error& fault) {
        ++seen.refused;
        seen.unclear += is_clear(fault.what(), folder) ? 0 : 1;
        if (!is_clear(fault.what(), folder)) { MESSAGE(fault.what()); }
        return;
    }
    picture_options lenient = small;
    lenient.on_bad_picture = bad_picture::skip;
    std::string refusal;
    try {
        for (std::uint32_t i = 0; i != index.size(); ++i) { (void)captioned_pictures{index, small}.at(i); }
        ++seen.read;
        return;
    } catch (const pulse::input_error& fault) { refusal = fault.what(); }
    ++seen.refused;
    seen.unclear += is_clear(refusal, folder) ? 0 : 1;
    if (!is_clear(refusal, folder)) { MESSAGE(refusal); }
    try {
        const captioned_pictures pictures{index, lenient};
        bool named = false;
        for (std::uint32_t i = 0; i != index.size(); ++i) {
            const auto sample = pictures.at(i);
            named = named || (!sample.refused.empty() && sample.refused.front() == refusal);
        }
        seen.skipped += named ? 1 : 0;
        seen.unskipped += named ? 0 : 1;
    } catch (const pulse::input_error& fault) {
        // The only picture is bad: nothing is left.
        ++seen.unskipped;
        seen.unclear += std::string{fault.what()}.find(refusal) == std::string::npos ? 1 : 0;
    }
}

} // namespace

TEST_CASE("damaged pictures are refused by name, or skipped as asked") {
    std::minstd_rand draw{1};
    const auto image = pulse::test::some_picture(21, 14);
    const std::string exif = pulse::test::exif_with(5);
    const std::vector<std::string> files{
        pulse::test::encode_jpeg(image, {.exif = exif}), pulse::test::encode_jpeg(image, {.progressive = true}),
        pulse::test::encode_jpeg(image, {.inks = true}), pulse::test::png_with_exif(image, exif),
        pulse::test::encode_webp(image, exif)};
    outcome seen;
    for (int round = 0; round != 300; ++round) {
        const pulse::test::scratch folder;
        put(folder.path / "a.jpg", damaged(files[static_cast<std::size_t>(round) % files.size()], draw));
        put(folder.path / "a.txt", "a");
        put(folder.path / "b.png", pulse::io::encode_png(image));
        put(folder.path / "b.txt", "b");
        read_folder(folder.path, seen);
    }
    CHECK(seen.unclear == 0);
    CHECK(seen.unskipped == 0);
    CHECK(seen.skipped == seen.refused);
    CHECK(seen.refused > 150); // a wrong sample, or text beside the picture, cannot be detected
    CHECK(seen.read + seen.refused == 300);
}

TEST_CASE("damaged captions are refused by name, or skipped as asked") {
    std::minstd_rand draw{2};
    outcome seen;
    const std::string picture = pulse::io::encode_png(pulse::test::some_picture(9, 9));
    for (int round = 0; round != 60; ++round) {
        const pulse::test::scratch folder;
        std::string caption = "\xC3\xA9t\xC3\xA9 \xE7\x8C\xAB \xF0\x9F\x98\xBA";
        caption[draw() % caption.size()] = static_cast<char>(round % 3 == 0 ? 0 : 0x80U + draw() % 0x80U);
        put(folder.path / "a.png", picture);
        put(folder.path / "a.txt", caption);
        put(folder.path / "b.png", picture);
        put(folder.path / "b.txt", "b");
        read_folder(folder.path, seen);
    }
    CHECK(seen.unclear == 0);
    CHECK(seen.unskipped == 0);
    CHECK(seen.refused > 40);
}

TEST_CASE("damaged metadata, damaged JSON beside pictures and damaged shards are refused by name") {
    std::minstd_rand draw{3};
    const std::string picture = pulse::io::encode_png(pulse::test::some_picture(9, 9));
    const std::string lines =
        "{\"file_name\": \"a.png\", \"text\": \"a \\u00e9 cat\"}\n{\"file_name\": \"b.png\", \"text\": \"b\"}\n";
    const std::string table = "file_name,text\r\na.png,\"a \xC3\xA9 cat,\r\nsitting\"\r\nb.png,b\r\n";
    const std::string shard = tar_file("x", "19 path=long/a.png\n", 'x') + tar_file("a.png", picture) +
                              tar_file("long/a.txt", "one") +
                              tar_file("././@LongLink", std::string(120, 'b') + ".png", 'L') + tar_file("b", picture) +
                              tar_file("././@LongLink", std::string(120, 'b') + ".txt", 'L') + tar_file("b", "three") +
                              tar_file(std::string(80, 'c') + ".png", picture) +
                              tar_file(std::string(80, 'c') + ".json", "{\"caption\": \"two\"}");
    outcome seen;
    for (int round = 0; round != 480; ++round) {
        const pulse::test::scratch folder;
        if (round % 4 != 3) {
            put(folder.path / "a.png", picture);
            put(folder.path / "b.png", picture);
        }
        if (round % 4 == 0) {
            put(folder.path / "metadata.jsonl", damaged(lines, draw));
        } else if (round % 4 == 1) {
            put(folder.path / "metadata.csv", damaged(table, draw));
        } else if (round % 4 == 2) {
            put(folder.path / "a.json", damaged("{\"url\": null, \"caption\": \"a \\u00e9 cat\"}", draw));
            put(folder.path / "b.txt", "b");
        } else {
            put(folder.path / "s.tar", damaged(shard, draw) + tar_end());
        }
        read_folder(folder.path, seen);
    }
    CHECK(seen.unclear == 0);
    CHECK(seen.refused > 240);
    CHECK(seen.read + seen.refused == 480);
}
