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

using pulse::data::folder_names;
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
    [[nodiscard]] std::string refusal(const pulse::data::caption_options& options = {}) const {
        try {
            (void)open_pictures(path, options);
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
         {"s/a.png", "A"}}};
    const auto index = open_pictures(folder.path);
    CHECK(index.layout == picture_layout::metadata);
    REQUIRE(index.size() == 2);
    CHECK(index.caption(0) == "two");
    CHECK(index.stored_bytes(0, 10) == "B");
    CHECK(index.caption(1) == "one");
    CHECK(index.stored_bytes(1, 10) == "A");
    CHECK(index.name(1) == "'" + (folder.path / "s/a.png").string() + "'");
    CHECK_THROWS_WITH_AS((void)index.stored_bytes(0, 0),
                         ("'" + (folder.path / "b.jpg").string() + "': 1 bytes, but at most 0 are read").c_str(),
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

TEST_CASE("class folders are captions and labels where that is asked for, sorted by name") {
    const folder_of folder{
        {{"dog/2.jpg", "d2"}, {"dog/10.jpg", "d10"}, {"ant/1.webp", "a1"}, {"cat/in/1.jpeg", "c1"}, {"logs/x", ""}}};
    for (const auto use : {folder_names::labels, folder_names::captions}) {
        const auto index = open_pictures(folder.path, {.folders = use});
        CHECK(index.layout == picture_layout::class_folders);
        CHECK(index.classes == std::vector<std::string>{"ant", "cat", "dog"});
        REQUIRE(index.size() == 4);
        const std::vector<std::string> bytes{"a1", "c1", "d10", "d2"};
        const std::vector<int> labels{0, 1, 2, 2};
        for (std::uint32_t i = 0; i != 4; ++i) {
            CHECK(index.stored_bytes(i, 10) == bytes[i]);
            CHECK(index.entries[i].label == labels[i]);
            const std::string& name = index.classes[static_cast<std::size_t>(labels[i])];
            CHECK(index.caption(i) == (use == folder_names::captions ? name : ""));
        }
    }
    // Labels do not depend on captions, and exist only with subfolders.
    const folder_of captioned{{{"train/b/1.png", ""},
                               {"train/a/1.png", ""},
                               {"train/a/1.txt", ""},
                               {"test/a/1.png", ""},
                               {"train/metadata.csv", "?"}}};
    CHECK(open_pictures(captioned.path, {.folders = folder_names::labels}).classes ==
          std::vector<std::string>{"a", "b"});
    CHECK(open_pictures(captioned.path, {.folders = folder_names::labels}).left_out.by_ending ==
          std::map<std::string, std::uint64_t>{{".csv", 1}});
    const folder_of flat{{{"1.png", ""}, {"metadata.jsonl", "?"}}};
    CHECK(open_pictures(flat.path, {.folders = folder_names::labels}).classes.empty());
    CHECK(folder_of{{{"1.png", ""}, {"a/1.png", ""}}}.refusal({.folders = folder_names::labels}) ==
          "'D': the picture '1.png' is in no folder whose name could be its class");
}

TEST_CASE("names of folders are captions of data without others alone") {
    constexpr auto use = folder_names::captions;
    const std::string refusal = "'D': folder names are captions only where there are no others, but there is ";
    CHECK(folder_of{{{"a/1.png", ""}, {"b/c/2.png", ""}, {"b/c/2.TXT", ""}}}.refusal({.folders = use}) ==
          refusal + "'b/c/2.TXT'");
    CHECK(folder_of{{{"a/1.png", ""}, {"b/metadata.csv", ""}}}.refusal({.folders = use}) ==
          refusal + "'b/metadata.csv'");
    CHECK(folder_of{{{"a/1.tar", tar_end()}}}.refusal({.folders = use}) == refusal + "'a/1.tar'");
    CHECK(folder_of{{{"a/1.png", ""}, {"2.png", ""}}}.refusal({.folders = use}) ==
          "'D': the picture '2.png' has no caption: it is in no folder whose name could be its caption");
    const folder_of mixed{{{"a/1.png", ""}, {"2.png", ""}}};
    CHECK(open_pictures(mixed.path, {.folders = use, .on_missing = pulse::data::missing_caption::skip}).size() == 1);
}

TEST_CASE("a picture that metadata name twice has one caption, or is refused") {
    const std::string outer = "{\"file_name\":\"a/1.png\",\"text\":\"one\"}\n";
    const auto twice = [&](const std::string& inner) {
        return folder_of{
            {{"metadata.jsonl", outer}, {"a/metadata.csv", "file_name,text\n1.png," + inner + "\n"}, {"a/1.png", ""}}};
    };
    CHECK(open_pictures(twice("one").path).size() == 1);
    CHECK(twice("other").refusal().find("'D': the picture 'a/1.png' has two captions, in ") == 0);
}

TEST_CASE("a picture without a caption stops, is skipped or gets an empty one, as asked") {
    const std::string line = "{\"file_name\":\"a/1.png\",\"text\":\"one\"}\n{\"file_name\":\"2.png\",\"text\":null}\n";
    const std::map<std::string, std::map<std::string, std::string>> layouts{
        {"metadata", {{"metadata.jsonl", line}, {"a/1.png", ""}, {"2.png", ""}, {"b/3.png", ""}}},
        {"sidecars", {{"a/1.png", ""}, {"a/1.caption", "one"}, {"2.png", ""}, {"b/3.png", ""}, {"b/3.tiff", ""}}},
        {"shards",
         {{"s.tar", tar_file("a/1.png", "") + tar_file("2.png", "") + tar_file("a/1.txt", "one") +
                        tar_file("b/3.gif", "") + tar_file("b/3.cls", "") + tar_end()}}}};
    for (const auto& layout : layouts) {
        CAPTURE(layout.first);
        const folder_of folder{layout.second};
        CHECK(folder.refusal().find("'D': the picture '2.png' has no caption: ") == 0);
        CHECK_THROWS_AS((void)open_pictures(folder.path), pulse::data::missing_caption_error);
        const auto empty = open_pictures(folder.path, {.on_missing = pulse::data::missing_caption::empty});
        REQUIRE(empty.size() == 3);
        CHECK(empty.captions_taken_as_empty == 2);
        int captioned = 0;
        for (std::uint32_t i = 0; i != 3; ++i) { captioned += empty.caption(i) == "one" ? 1 : 0; }
        CHECK(captioned == 1);
        const auto skipped = open_pictures(folder.path, {.on_missing = pulse::data::missing_caption::skip});
        REQUIRE(skipped.size() == 1);
        CHECK(skipped.left_out.without_caption == 2);
        CHECK(skipped.entries[0].name == "a/1.png");
        CHECK(skipped.caption(0) == "one");
    }
}

TEST_CASE("of captions beside a picture a text comes before JSON, unless a field is asked for") {
    const std::map<std::string, std::string> files{{"a.png", ""},
                                                   {"a.json", R"({"prompt":"p","blip":"b"})"},
                                                   {"a.txt", "t"},
                                                   {"a.caption", "t"},
                                                   {"a.b.txt", "no"}};
    const folder_of folder{files};
    std::string shard;
    for (const auto& [name, bytes] : files) { shard += tar_file(name, bytes); }
    const folder_of shards{{{"1.tar", shard + tar_end()}}};
    for (const auto* data : {&folder, &shards}) {
        CHECK(open_pictures(data->path).caption(0) == "t");
        CHECK(open_pictures(data->path, {.column = "blip"}).caption(0) == "b");
    }
    auto differing = files;
    differing["a.caption"] = "other";
    CHECK(folder_of{differing}.refusal() ==
          "'D': 'a.caption' and 'a.txt' are captions of one picture: it is not clear which one is meant");
    const folder_of fields{{{"a.png", ""}, {"a.json", R"({"url":"u","tags":[]})"}}};
    CHECK_THROWS_WITH_AS((void)open_pictures(fields.path).caption(0),
                         ("'" + (fields.path / "a.json").string() +
                          "': has no caption field: expected 'text', 'caption' or 'prompt', found 'tags', 'url'")
                             .c_str(),
                         pulse::input_error);
}

TEST_CASE("shards hold samples by name: text before JSON, members of no picture passed over") {
    const folder_of folder{
        {{"01.tar", tar_file("x/000.json", R"({"caption":"not this"})") + tar_file("x/000.jpg", "P0") +
                        tar_file("x/000.txt", "zero") + tar_file("x/22.05.JPG", "P1") + tar_file("note", "") +
                        tar_file("x/001.json", R"({"caption":"one","url":7})") + tar_file("x/001.seg.png", "mask") +
                        tar_file("x/22.05.txt", "dotted") + tar_file("x/001.PNG", "P2") +
                        tar_file("x/001.seg.tif", "mask") + tar_file("x/._001.png", "") +
                        tar_file("__MACOSX/x/9.png", "") + tar_end()},
         {"00.tar", tar_file("a.b.cls", "3") + tar_file("./a.webp", "P") +
                        tar_file("./a.json", R"({"text":"t","caption":"c"})") + tar_end() +
                        "what stands behind the end"}}};
    const auto index = open_pictures(folder.path);
    CHECK(index.layout == picture_layout::shards);
    REQUIRE(index.size() == 4);
    const std::vector<std::string> bytes{"P", "P0", "P1", "P2"};
    const std::vector<std::string> captions{"t", "zero", "dotted", "one"};
    for (std::uint32_t i = 0; i != 4; ++i) {
        CHECK(index.stored_bytes(i, 10) == bytes[i]);
        CHECK(index.caption(i) == captions[i]);
    }
    CHECK(index.name(2) == "'" + (folder.path / "01.tar: x/22.05.JPG").string() + "'");
    CHECK(index.left_out.of_other_samples == 1);
    CHECK(index.left_out.by_ending == std::map<std::string, std::uint64_t>{{".tif", 1}});
}

TEST_CASE("a split is one where there are only splits, and train is read") {
    const auto names = [](const std::map<std::string, std::string>& files) {
        const folder_of folder{files};
        std::string all;
        for (const auto& entry :
             open_pictures(folder.path, {.on_missing = pulse::data::missing_caption::empty}).entries) {
            all += entry.name + ' ';
        }
        return all;
    };
    const std::string a;
    CHECK(names({{"train/1.png", a}}) == "train/1.png ");
    CHECK(names({{"train/1.png", a}, {"test/2.png", a}, {"DEV/x/3.png", a}, {"labels.csv", a}}) == "train/1.png ");
    CHECK(names({{"train/1.png", a}, {"test/2.png", a}, {"tests/3.txt", a}}) == "train/1.png ");
    CHECK(names({{"train/1.png", a}, {"plane/2.png", a}}) == "plane/2.png train/1.png ");
    CHECK(names({{"data/train/1.png", a}, {"data/test/2.png", a}}) == "data/train/1.png ");
    CHECK(names({{"train/1.png", a}, {"test/2.png", a}, {"docs/x.csv", a}}) == "train/1.png ");
    for (const char* other : {"3.png", "plane/3.png"}) {
        CHECK(folder_of{{{"train/1.png", a}, {"test/2.png", a}, {other, a}}}.refusal().find(
                  "'D' holds the splits 'train' and others beside ") == 0);
    }
    CHECK(names({{"test/1.png", a}, {"val/2.png", a}}) == "test/1.png val/2.png ");
    CHECK(folder_of{{{"train/1.tiff", a}, {"test/2.png", a}}}.refusal() ==
          "'D' holds no captioned pictures: 'train/1.tiff' is not read");
}

TEST_CASE("a folder that could be read in two ways, or in none, is refused in one sentence") {
    const std::string line = "{\"file_name\":\"a.jpg\",\"text\":\"a\"}\n";
    CHECK(folder_of{{{"metadata.jsonl", line}, {"a.jpg", ""}, {"a.txt", ""}}}.refusal() ==
          "'D' holds both metadata ('metadata.jsonl') and captions beside pictures ('a.txt'): it is not clear which "
          "one is "
          "meant");
    CHECK(folder_of{{{"s/metadata.csv", ""}, {"s/metadata.jsonl", line}, {"s/a.jpg", ""}}}.refusal() ==
          "'D/s/' holds both metadata.csv and metadata.jsonl: it is not clear which one is meant");
    CHECK(folder_of{{{"metadata.parquet", ""}, {"a.jpg", ""}}}.refusal() ==
          "'D/metadata.parquet' is not read: convert it to metadata.csv or metadata.jsonl, as with "
          "pandas.read_parquet(...).to_csv('metadata.csv', index=False)");
    CHECK(folder_of{{{"metadata.jsonl", line}, {"a.tar", ""}}}.refusal() ==
          "'D' holds both metadata ('metadata.jsonl') and shards ('a.tar'): it is not clear which one is meant");
    CHECK(folder_of{{{"b.jpg", ""}, {"x/a.tar", ""}}}.refusal() ==
          "'D' holds both shards ('x/a.tar') and pictures ('b.jpg'): it is not clear which one is meant");
    CHECK(folder_of{{{"b.jpg", ""}, {"a.jpg", ""}, {"a.txt", ""}, {"captions.csv", ""}}}.refusal() ==
          "'D': the picture 'b.jpg' has no caption: no .txt, .caption or .json of its name, and no metadata.jsonl or "
          "metadata.csv; 'captions.csv' is not read");
    CHECK(
        folder_of{{{"dog/a.jpg", ""}}}.refusal() ==
        "'D': the picture 'dog/a.jpg' has no caption: no .txt, .caption or .json of its name, and no metadata.jsonl or "
        "metadata.csv");
    CHECK(folder_of{{{"metadata.jsonl", line}, {"a.jpg", ""}, {"b.jpg", ""}}}.refusal() ==
          "'D': the picture 'b.jpg' has no caption: the metadata do not name it");
    CHECK(folder_of{{{"a.tar.gz", ""}}}.refusal() ==
          "'D/a.tar.gz' is compressed: shards must be plain .tar files, which can be read at any place");
    CHECK(folder_of{{{"metadata.jsonl", "\n"}}}.refusal() == "'D' holds no captioned pictures");
    CHECK(folder_of{{{"a.tar", tar_end()}, {"b.tar", ""}}}.refusal() == "'D' holds no captioned pictures");
    CHECK(folder_of{{}}.refusal() == "'D' holds no captioned pictures");
    CHECK(folder_of{{{"a.tar", tar_file("1.jpg", "") + tar_end()}}}.refusal() ==
          "'D': the picture '1.jpg' has no caption: no .txt, .caption or .json of its name in 'D/a.tar'");
    CHECK(folder_of{{{"a.tar", tar_file("1.jpg", "") + tar_file("1.png", "") + tar_end()}}}.refusal() ==
          "'D/a.tar': '1.jpg' and '1.png' are two pictures of one sample");
    CHECK_THROWS_WITH_AS((void)open_pictures("/no/such\nfolder"), "'/no/such?folder' is not a folder",
                         pulse::input_error);
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
