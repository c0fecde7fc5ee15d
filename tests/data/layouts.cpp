// The same pictures and captions are read from every layout that holds them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/core/fingerprint.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/encoded_pictures.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/data/picture_names.hpp>
#include <pulse/io/png.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

namespace {

using namespace pulse::data;
using pulse::test::put;
using pulse::test::tar_end;
using pulse::test::tar_file;

/// Pictures by name: their bytes and captions.
using picture_texts = std::map<std::string, std::pair<std::string, std::string>>;

template <class T>
const T& any_of(const std::vector<T>& all, std::minstd_rand& draw) {
    return all[draw() % all.size()];
}

/// Pictures in nested folders whose names contain dots and spaces.
picture_texts drawn_texts(std::minstd_rand& draw) {
    const std::vector<std::string> folders{"", "cat/", "dog/", "dog/big one/", "dog.old/2.5/", "a/b/c/d/"};
    const std::vector<std::string> endings{"jpg", "JPG", "jpeg", "jfif", "png", "Webp", "bmp", "gif"};
    const std::vector<std::string> pieces{"a cat", ",", "\"", "\"\"", "\n", "\r\n", "\xC3\xA9", "\\", "{}", ";", "\t"};
    picture_texts all;
    for (std::size_t i = 1 + draw() % 12; i != 0; --i) {
        std::string text = "b";
        for (std::size_t n = draw() % 6; n != 0; --n) { text += any_of(pieces, draw); }
        std::string name = any_of(folders, draw) + std::to_string(i);
        if (draw() % 3 == 0) { name += ".0" + std::to_string(draw() % 10); }
        name += '.' + any_of(endings, draw);
        all[name] = {"the bytes of " + name, text + 'e'};
    }
    return all;
}

void put_file(const std::filesystem::path& path, const std::string& bytes) {
    std::filesystem::create_directories(path.parent_path());
    put(path, bytes);
}

std::string quoted(const std::string& field) {
    std::string all = "\"";
    for (const char c : field) { all += c == '"' ? std::string{"\"\""} : std::string{c}; }
    return all + '"';
}

std::string table(bool csv, const std::string& column, const std::map<std::string, std::string>& rows) {
    std::string text = csv ? "\xEF\xBB\xBFurl," + column + ",file_name\r\n" : "";
    for (const auto& [name, caption] : rows) {
        text += csv ? "http://x," + quoted(caption) + ',' + quoted(name) + "\r\n"
                    : nlohmann::json{{"file_name", name}, {column, caption}, {"url", nullptr}}.dump() + '\n';
    }
    return text;
}

enum class written : std::uint8_t { one_table, tables, sidecars, shards };

void write_layout(const std::filesystem::path& folder, written as, const std::string& column, const picture_texts& all,
                  std::minstd_rand& draw) {
    std::map<std::string, std::map<std::string, std::string>> tables;
    std::vector<std::string> members;
    for (const auto& [name, picture] : all) {
        const std::string stem{split_ending(name).stem};
        const std::string json = nlohmann::json{{"url", 3}, {column, picture.second}}.dump();
        const std::size_t slash = as == written::tables ? name.rfind('/') + 1 : 0;
        const std::string ending = any_of<std::string>({"txt", "TXT", "caption", "json"}, draw);
        tables[name.substr(0, slash)][name.substr(slash)] = picture.second;
        if (as == written::shards) {
            members.push_back(tar_file(name, picture.first));
            members.push_back(tar_file(stem + '.' + ending, ending == "json" ? json : picture.second));
            if (draw() % 2 == 0) { members.push_back(tar_file(stem + ".cls", "3")); }
            if (draw() % 2 == 0) { members.push_back(tar_file(stem + ".seg.png", "mask")); }
            continue;
        }
        put_file(folder / name, picture.first);
        if (as == written::sidecars) {
            put_file(folder / (stem + '.' + ending), ending == "json" ? json : picture.second + "\r\n");
        }
    }
    if (as == written::one_table || as == written::tables) {
        for (const auto& [below, rows] : tables) {
            const bool csv = draw() % 2 == 0;
            put_file(folder / below / (csv ? "metadata.csv" : "metadata.jsonl"), table(csv, column, rows));
        }
    }
    if (as == written::shards) {
        std::shuffle(members.begin(), members.end(), draw);
        std::string shard;
        for (const std::string& member : members) { shard += member; }
        put_file(folder / "b/1.tar", shard + tar_end());
        put_file(folder / "0.tar", "");
        put_file(folder / "2.tar", tar_end());
    }
}

picture_texts read_layout(const picture_index& index, const std::string& base) {
    picture_texts all;
    for (std::uint32_t i = 0; i != index.size(); ++i) {
        std::string name = index.entries[i].name;
        if (index.layout != picture_layout::shards) { name = name.substr(base.size()); }
        all[name] = {index.stored_bytes(i, 1000), index.caption(i)};
    }
    CHECK(all.size() == index.size());
    return all;
}

} // namespace

TEST_CASE("every layout gives the pictures and captions that were written") {
    std::minstd_rand draw{1};
    for (int round = 0; round != 160; ++round) {
        const pulse::test::scratch folder;
        const auto as = static_cast<written>(round % 4);
        CAPTURE(round);
        const std::string column = any_of<std::string>({"text", "caption", "prompt", "blip"}, draw);
        const bool split = draw() % 3 == 0;
        const std::string base = split ? any_of<std::string>({"train/", "Train/"}, draw) : "";
        const picture_texts all = drawn_texts(draw);
        write_layout(folder.path / base, as, column, all, draw);
        // Hidden files, duplicate links, and files of unsupported formats.
        put_file(folder.path / base / ".ipynb_checkpoints/a.png", "");
        put_file(folder.path / base / "__MACOSX/a.png", "");
        put_file(folder.path / base / "._a.png", "");
        put_file(folder.path / base / "x/notes.TIFF", "");
        std::filesystem::create_directory_symlink("..", folder.path / base / "x/up");
        if (split) {
            put_file(folder.path / "test/t.png", "");
            put_file(folder.path / "Validation/1/t.png", "");
            put_file(folder.path / "README.txt", "");
            put_file(folder.path / "test/metadata.csv", "no table");
        }
        const picture_index index = open_pictures(folder.path, {.column = column == "blip" ? column : ""});
        CHECK(read_layout(index, base) == all);
        std::vector<std::string> names;
        for (const picture_entry& entry : index.entries) { names.push_back(entry.name); }
        if (as == written::sidecars) { CHECK(std::is_sorted(names.begin(), names.end())); }
        CHECK(index.left_out.by_ending == std::map<std::string, std::uint64_t>{{".tiff", 1}});
        CHECK(index.left_out.empty_shards == (as == written::shards ? 2 : 0));
        CHECK(index.left_out.folders_again == 1);
        CHECK(index.left_out.splits.size() == (split ? 2 : 0));
    }
}

TEST_CASE("an epoch has each picture as often as its folder asks, whether encoded once or not") {
    for (const bool beside : {true, false}) {
        const pulse::test::scratch folder;
        const std::map<std::string, std::uint32_t> repeats{{"10_cat", 10}, {"3_a dog", 3}, {"fox", 1}, {"2019_trip", 1},
                                                           {"01_ant", 1},  {"7_", 1},      {"5", 1},   {"999_b", 999}};
        std::uint64_t epoch = 0;
        unsigned seed = 1;
        for (const auto& [name, times] : repeats) {
            for (const char* picture : {"0", "1"}) {
                const auto stem = folder.path / name / picture;
                put_file(stem.string() + ".png", pulse::io::encode_png(pulse::test::some_picture(8, 8, seed++)));
                if (beside) { put_file(stem.string() + ".txt", name + ' ' + picture); }
                epoch += times;
            }
        }
        const picture_options options{.height = 8, .width = 8, .seed = 3};
        const captioned_pictures pictures{
            open_pictures(folder.path, {.folders = beside ? folder_names::nothing : folder_names::captions}), options};
        CHECK(pictures.size() == 16);
        REQUIRE(pictures.epoch() == epoch);
        CHECK(pictures.index().repeats.size() == 3);
        const auto cache = folder.path / "cache";
        encoded_pictures encoded{pictures,
                                 distinct_samples{pictures, cache},
                                 cache,
                                 {.picture = {{{"mean", {1}}}}, .caption = {{"n", {1}}}}};
        encoded.encode([](const picture_sample&, encoded_pictures::row_values to) { to[0][0] = 1; },
                       [](const std::string& text, encoded_pictures::row_values to) {
                           to[0][0] = static_cast<float>(text.size());
                       });
        CHECK(encoded.pictures().layout().keys.size() == 16);
        for (std::uint64_t at = 0; at != 2; ++at) {
            std::map<std::string, std::uint32_t> seen;
            for (std::uint64_t i = 0; i != epoch; ++i) {
                const picture_sample sample = pictures.caption_at(at * epoch + i);
                const std::string name = pictures.index().entries[sample.index].name;
                ++seen[name];
                const std::string in = name.substr(0, name.find('/'));
                const std::string other = in == "10_cat" ? "cat" : in == "3_a dog" ? "a dog" : in == "999_b" ? "b" : in;
                CHECK(sample.caption == (beside ? in + ' ' + name.substr(in.size() + 1, 1) : other));
                CHECK(encoded.at(at * epoch + i).index == sample.index);
            }
            for (const auto& [name, times] : repeats) {
                for (const char* picture : {"/0.png", "/1.png"}) { CHECK(seen[name + picture] == times); }
            }
        }
    }
}
