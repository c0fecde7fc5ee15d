#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/data/picture_index.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

namespace {

using pulse::data::open_pictures;
using pulse::data::picture_layout;
using pulse::test::tar_end;
using pulse::test::tar_file;

/// A folder with these files.
struct folder_of : pulse::test::scratch {
    explicit folder_of(const std::map<std::string, std::string>& files) {
        for (const auto& [name, bytes] : files) {
            std::filesystem::create_directories((path / name).parent_path());
            pulse::test::put(path / name, bytes);
        }
    }
    [[nodiscard]] std::string refusal() const {
        try {
            (void)open_pictures(path);
        } catch (const pulse::input_error& fault) {
            std::string text = fault.what();
            while (text.find(path.string()) != std::string::npos) {
                text.replace(text.find(path.string()), path.string().size(), "D");
            }
            return text;
        }
        return "opened";
    }
};

} // namespace

TEST_CASE("metadata.jsonl names pictures, also in folders below") {
    const folder_of folder{
        {{"metadata.jsonl",
          "{\"file_name\":\"b.jpg\",\"text\":\"two\"}\n{\"file_name\":\"s/a.png\",\"text\":\"one\"}\n"},
         {"b.jpg", "B"},
         {"s/a.png", "A"},
         {"unnamed.jpg", ""}}};
    const auto index = open_pictures(folder.path);
    CHECK(index.layout == picture_layout::metadata);
    REQUIRE(index.size() == 2);
    CHECK(index.caption(0) == "two");
    CHECK(index.stored_bytes(0, 10) == "B");
    CHECK(index.caption(1) == "one");
    CHECK(index.stored_bytes(1, 10) == "A");
    CHECK(index.name(1) == "'" + (folder.path / "s/a.png").string() + "'");
    CHECK_THROWS_WITH_AS(
        (void)index.stored_bytes(0, 0),
        ("'" + (folder.path / "b.jpg").string() + "': 1 bytes are more than the 0 that are read").c_str(),
        pulse::input_error);
}

TEST_CASE("texts beside pictures are their captions") {
    const folder_of folder{{{"b.jpg", "B"},
                            {"b.txt", " two\n"},
                            {"a.x.PNG", "A"},
                            {"a.x.txt", "one"},
                            {"readme.txt", ""},
                            {".hidden.jpg", ""}}};
    const auto index = open_pictures(folder.path);
    CHECK(index.layout == picture_layout::sidecars);
    REQUIRE(index.size() == 2);
    CHECK(index.caption(0) == "one");
    CHECK(index.stored_bytes(0, 10) == "A");
    CHECK(index.caption(1) == "two");
}

TEST_CASE("class folders are captions and labels, sorted by name") {
    const folder_of folder{{{"dog/2.jpg", "d2"}, {"dog/10.jpg", "d10"}, {"ant/1.webp", "a1"}, {"cat/1.jpeg", "c1"}}};
    const auto index = open_pictures(folder.path);
    CHECK(index.layout == picture_layout::class_folders);
    CHECK(index.classes == std::vector<std::string>{"ant", "cat", "dog"});
    REQUIRE(index.size() == 4);
    const std::vector<std::string> bytes{"a1", "c1", "d10", "d2"};
    const std::vector<int> labels{0, 1, 2, 2};
    for (std::uint32_t i = 0; i != 4; ++i) {
        CHECK(index.stored_bytes(i, 10) == bytes[i]);
        CHECK(index.entries[i].label == labels[i]);
        CHECK(index.caption(i) == index.classes[static_cast<std::size_t>(labels[i])]);
    }
}

TEST_CASE("shards hold samples in a row: text before JSON, members of no picture passed over") {
    const folder_of folder{
        {{"01.tar", tar_file("x/000.json", R"({"caption":"not this"})") + tar_file("x/000.jpg", "P0") +
                        tar_file("x/000.txt", "zero") + tar_file("x/001.PNG", "P1") +
                        tar_file("x/001.json", R"({"caption":"one","url":7})") + tar_file("note", "") +
                        tar_file("x/001.jpg", "P1b") + tar_file("x/001.txt", "again") +
                        tar_file("x/001.json", R"({"text":"nor this"})") + tar_end()},
         {"00.tar", tar_file("a.b.cls", "3") + tar_file("a.webp", "P") +
                        tar_file("a.json", R"({"text":"t","caption":"c"})") + tar_end() +
                        "what stands behind the end"}}};
    const auto index = open_pictures(folder.path);
    CHECK(index.layout == picture_layout::shards);
    REQUIRE(index.size() == 4);
    const std::vector<std::string> bytes{"P", "P0", "P1", "P1b"};
    const std::vector<std::string> captions{"t", "zero", "one", "again"};
    for (std::uint32_t i = 0; i != 4; ++i) {
        CHECK(index.stored_bytes(i, 10) == bytes[i]);
        CHECK(index.caption(i) == captions[i]);
    }
    CHECK(index.name(2) == "'" + (folder.path / "01.tar: x/001.PNG").string() + "'");
}

TEST_CASE("a folder that could be read in two ways, or in none, is refused in one sentence") {
    const std::string line = "{\"file_name\":\"a.jpg\",\"text\":\"a\"}\n";
    CHECK(folder_of{{{"metadata.jsonl", line}, {"a.jpg", ""}, {"a.txt", ""}}}.refusal() ==
          "'D' holds both metadata.jsonl and captions beside pictures ('a.jpg'): which of them is meant is not clear");
    CHECK(folder_of{{{"metadata.jsonl", line}, {"a.tar", ""}}}.refusal() ==
          "'D' holds both metadata.jsonl and shards ('a.tar'): which of them is meant is not clear");
    CHECK(folder_of{{{"b.jpg", ""}, {"a.tar", ""}}}.refusal() ==
          "'D' holds both shards and pictures ('b.jpg'): which of them is meant is not clear");
    CHECK(folder_of{{{"b.jpg", ""}, {"b.txt", ""}, {"dog/a.jpg", ""}}}.refusal() ==
          "'D' holds both pictures and folders of pictures ('dog/a.jpg'): which of them is meant is not clear");
    CHECK(folder_of{{{"dog/a.jpg", ""}, {"dog/a.txt", ""}}}.refusal() ==
          "'D' holds both class folders and captions beside their pictures ('dog/a.jpg'): which of them is meant is "
          "not clear");
    CHECK(folder_of{{{"b.jpg", ""}, {"a.jpg", ""}, {"a.txt", ""}}}.refusal() ==
          "'D': the picture 'b.jpg' has no caption: no .txt of its name, and the folder no metadata.jsonl");
    CHECK(folder_of{{{"dog/a.jpg", ""}, {"logs/x", ""}}}.refusal() == "'D': the class folder 'logs' holds no pictures");
    CHECK(folder_of{{{"dog/a.jpg", ""}, {"dog/big/a.jpg", ""}}}.refusal() ==
          "'D': the class folder 'dog' holds the folder 'big', where pictures are expected");
    CHECK(folder_of{{{"a.tar.gz", ""}}}.refusal() ==
          "'D/a.tar.gz' is packed: shards are plain .tar files, read at any place");
    CHECK(folder_of{{{"metadata.jsonl", "\n"}}}.refusal() == "'D' holds no captioned pictures");
    CHECK(folder_of{{{"a.tar", tar_end()}}}.refusal() == "'D' holds no captioned pictures");
    CHECK(folder_of{{}}.refusal() == "'D' holds no captioned pictures");
    CHECK(folder_of{{{"a.tar", tar_file("1.jpg", "") + tar_end()}}}.refusal() ==
          "'D/a.tar': the picture '1.jpg' has no caption: no .txt or .json beside it");
    CHECK(folder_of{{{"a.tar", tar_file("1.jpg", "") + tar_file("1.png", "") + tar_end()}}}.refusal() ==
          "'D/a.tar': '1.jpg' and '1.png' are two pictures of one sample");
    CHECK_THROWS_WITH_AS((void)open_pictures("/no/such\nfolder"), "'/no/such?folder' is no folder", pulse::input_error);
}

TEST_CASE("captions are checked when they are read, and named") {
    const folder_of folder{{{"a.jpg", ""}, {"a.txt", "\xFF"}}};
    CHECK_THROWS_WITH_AS((void)open_pictures(folder.path).caption(0),
                         ("'" + (folder.path / "a.txt").string() + "': the caption is not UTF-8 from byte 0").c_str(),
                         pulse::input_error);
    const folder_of shard{{{"s.tar", tar_file("a.jpg", "") + tar_file("a.json", "{\"caption\":[]}") + tar_end()}}};
    CHECK_THROWS_WITH_AS((void)open_pictures(shard.path).caption(0),
                         ("'" + (shard.path / "s.tar: a.jpg").string() + "': caption must be a string").c_str(),
                         pulse::input_error);
}
