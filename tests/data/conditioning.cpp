// Conditioning images are found beside captioned pictures and get the same crops and flips.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/check_pictures.hpp>
#include <pulse/data/conditioning.hpp>
#include <pulse/data/held_out.hpp>
#include <pulse/data/metadata.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/io/png.hpp>
#include <pulse/model/extent.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

namespace {

using namespace pulse::data;
using pulse::extent;
using pulse::io::encode_png;
using pulse::test::some_picture;

/// A folder of files that creates missing parent folders.
struct conditioned_folder : pulse::test::scratch {
    void add(const std::string& name, std::string_view bytes) const {
        std::filesystem::create_directories((path / name).parent_path());
        pulse::test::put(path / name, bytes);
    }
    [[nodiscard]] std::string quoted(const std::string& name) const { return '\'' + (path / name).string() + '\''; }
};

template <class Call>
std::string refusal_by(const Call& call) {
    try {
        call();
    } catch (const pulse::input_error& fault) { return fault.what(); }
    return "none";
}

std::vector<metadata_line> lines_of(bool csv, std::string_view text) {
    return csv ? parse_metadata_csv(text, "m") : parse_metadata(text, "m");
}

/// Each pixel repeated `factor` x `factor` times.
pulse::io::picture enlarged(const pulse::io::picture& image, int factor) {
    pulse::io::picture large{.width = factor * image.width, .height = factor * image.height, .channels = 3};
    for (int y = 0; y != large.height; ++y) {
        for (int x = 0; x != large.width; ++x) {
            const auto from = static_cast<std::size_t>(3 * (y / factor * image.width + x / factor));
            for (std::size_t k = 0; k != 3; ++k) { large.pixels.push_back(image.pixels[from + k]); }
        }
    }
    return large;
}

/// The picture reduced by `factor`: the mean of each square.
std::vector<float> means(const std::vector<float>& image, const extent& size, int factor) {
    std::vector<float> small;
    for (int y = 0; y != size.height / factor; ++y) {
        for (int x = 0; x != size.width / factor; ++x) {
            for (int k = 0; k != 3; ++k) {
                float sum = 0;
                for (int i = 0; i != factor * factor; ++i) {
                    const int at = (y * factor + i / factor) * size.width + x * factor + i % factor;
                    sum += image[static_cast<std::size_t>(3 * at + k)];
                }
                small.push_back(sum / static_cast<float>(factor * factor));
            }
        }
    }
    return small;
}

/// The largest difference between a sample's picture and its conditioning image.
float distance(const std::vector<float>& pixels, const std::vector<float>& conditioning) {
    REQUIRE(pixels.size() == conditioning.size());
    float most = 0;
    for (std::size_t i = 0; i != pixels.size(); ++i) {
        most = std::max(most, std::abs(2 * conditioning[i] - 1 - pixels[i]));
    }
    return most;
}

/// One picture with a conditioning image; options may crop and flip randomly.
captioned_pictures one_conditioned(const conditioned_folder& folder, const std::string& picture,
                                   const std::string& image, const picture_options& options) {
    folder.add("a.png", picture);
    folder.add("hint/a.png", image);
    folder.add("metadata.jsonl", R"({"file_name":"a.png","text":"a","conditioning_image":"hint/a.png"})");
    return {open_pictures(folder.path), options};
}

constexpr picture_options by_chance{.height = 12, .width = 10, .seed = 5, .random_crop = true, .horizontal_flip = true};

} // namespace

TEST_CASE("metadata name conditioning images by either of two fields, of which the first counts") {
    for (const bool csv : {false, true}) {
        CAPTURE(csv);
        for (const std::string field : {"conditioning_image", "conditioning_image_file_name"}) {
            const auto lines =
                lines_of(csv, csv ? "file_name,text," + field + "\n1.png,a,h/1.jpg\n2.png,b,\n3.png,c,\"\"\n"
                                  : "{\"file_name\":\"1.png\",\"text\":\"a\",\"" + field + "\":\"h/1.jpg\"}\n" +
                                        "{\"file_name\":\"2.png\",\"text\":\"b\",\"" + field + "\":null}\n" +
                                        "{\"file_name\":\"3.png\",\"text\":\"c\",\"" + field + "\":\"\"}\n");
            CHECK(lines ==
                  std::vector<metadata_line>{{"1.png", "a", "h/1.jpg"}, {"2.png", "b", {}}, {"3.png", "c", {}}});
            for (const std::string wrong : {"../1.png", "/1.png", "h/"}) {
                CHECK(refusal_by([&] {
                          (void)lines_of(csv, csv ? "file_name,text," + field + "\n1.png,a," + wrong
                                                  : "{\"file_name\":\"1.png\",\"text\":\"a\",\"" + field + "\":\"" +
                                                        wrong + "\"}");
                      }) == "m: line " + std::string{csv ? "2: " : "1: "} + field + " is '" + wrong +
                                "', which does not name a file below the folder");
            }
        }
        const auto both =
            lines_of(csv, csv ? "conditioning_image_file_name,conditioning_image,file_name,text\nno.png,yes.png,1.png,a"
                              : R"({"conditioning_image_file_name":"no.png","conditioning_image":"yes.png",)"
                                R"("file_name":"1.png","text":"a"})");
        CHECK(both == std::vector<metadata_line>{{"1.png", "a", "yes.png"}});
        const auto neither = lines_of(csv, csv ? "file_name,text,conditioning\n1.png,a,3"
                                               : R"({"file_name":"1.png","text":"a","conditioning":3})");
        CHECK(neither == std::vector<metadata_line>{{"1.png", "a", {}}});
    }
    // A reader that does not ask for them ignores what is wrong.
    for (const std::string wrong : {R"({"path":"h.png"})", R"("../h.png")", "3", "null"}) {
        CHECK(parse_metadata(R"({"file_name":"1.png","text":"a","conditioning_image":)" + wrong + "}", "m", {},
                             false) == std::vector<metadata_line>{{"1.png", "a", {}}});
    }
    CHECK(parse_metadata_csv("file_name,text,conditioning_image\n1.png,a,../h.png\n2.png,b,h.png", "m", {}, false) ==
          std::vector<metadata_line>{{"1.png", "a", {}}, {"2.png", "b", "h.png"}});
    CHECK(refusal_by([] {
              (void)parse_metadata(R"({"file_name":"1.png","text":"a","conditioning_image":{"path":"h.png"}})", "m");
          }) == "m: line 1: conditioning_image must be a string");
    CHECK(refusal_by([] { (void)parse_metadata_csv("conditioning_image,file_name,text,conditioning_image\n", "m"); }) ==
          "m: line 1: the column 'conditioning_image' occurs twice");
}

TEST_CASE("conditioning images that metadata name are no pictures of their own, unless they are named as such") {
    const conditioned_folder folder;
    for (const char* name : {"a.png", "sub/b.png", "hints/a.png", "sub/hints/b.jpg", "c.png"}) {
        folder.add(name, "x");
    }
    folder.add("metadata.jsonl", "{\"file_name\":\"a.png\",\"text\":\"a\",\"conditioning_image\":\"./hints/a.png\"}\n"
                                 "{\"file_name\":\"c.png\",\"text\":\"c\",\"conditioning_image\":\"a.png\"}\n");
    folder.add("sub/metadata.csv", "file_name,conditioning_image_file_name,text\nb.png,hints/b.jpg,b\n");
    picture_index index = open_pictures(folder.path);
    REQUIRE(index.size() == 3);
    CHECK(index.conditioning_folder == folder.path);
    const std::array<std::array<const char*, 2>, 3> want{
        {{"a.png", "hints/a.png"}, {"c.png", "a.png"}, {"sub/b.png", "sub/hints/b.jpg"}}};
    for (std::uint32_t i = 0; i != 3; ++i) {
        CHECK(index.entries[i].name == want[i][0]);
        CHECK(index.entries[i].conditioning == want[i][1]);
        CHECK(conditioning_name(index, i) == folder.quoted(want[i][1]));
    }
    require_conditioning(index);

    for (const auto part : {picture_part::held_out, picture_part::trained_on}) {
        picture_index some = index;
        keep_part(some, 0.4, part);
        CHECK(some.conditioning_folder == folder.path);
        for (const picture_entry& entry : some.entries) {
            CHECK(std::any_of(want.begin(), want.end(),
                              [&](auto& one) { return entry.name == one[0] && entry.conditioning == one[1]; }));
        }
    }

    folder.add("d.png", "x");
    CHECK_THROWS_AS((void)open_pictures(folder.path), missing_caption_error);
    index = open_pictures(folder.path, {.on_missing = missing_caption::empty});
    CHECK(index.size() == 4);
    const std::string lacks = refusal_by([&] { require_conditioning(index); });
    CHECK(lacks == folder.quoted("d.png") + " has no conditioning image: the metadata name none, and no folder of them "
                                            "is given; 1 of 4 pictures have none");
    CHECK(refusal_by([&] { check_conditioning(index, std::vector<picture_size>(4)); }) == lacks);
}

TEST_CASE("a picture has one conditioning image, however often metadata name it") {
    const conditioned_folder folder;
    folder.add("a.png", "x");
    const std::string line = R"({"file_name":"a.png","text":"a","conditioning_image":"h.png"})";
    folder.add("metadata.jsonl", line + '\n' + line);
    CHECK(open_pictures(folder.path).size() == 1);
    for (const std::string other : {"i.png", ""}) {
        folder.add("metadata.jsonl", line +
                                         "\n"
                                         R"({"file_name":"a.png","text":"a","conditioning_image":")" +
                                         other + "\"}");
        const std::string table = folder.quoted("metadata.jsonl");
        CHECK_NOTHROW((void)open_pictures(folder.path));
        CHECK(refusal_by([&] { (void)open_pictures(folder.path, {.conditioning = true}); }) ==
              '\'' + folder.path.string() + "': the picture 'a.png' has two conditioning images, in " + table +
                  " and in " + table + ": it is not clear which one is meant");
    }
}

TEST_CASE("a folder gives each picture the conditioning image of its name, or says which has none or two") {
    const conditioned_folder folder;
    for (const std::string stem : {"a", "a.old", "dog/a", "dog/big/1.5"}) {
        folder.add("pictures/" + stem + ".jpg", "x");
        folder.add("pictures/" + stem + ".txt", stem);
    }
    for (const char* name : {"a.png", "a.old.JPG", "dog/a.Webp", "dog/big/1.5.gif", "dog/a.txt", "more/b.png"}) {
        folder.add(std::string{"images/"} + name, "x");
    }
    picture_index index = open_pictures(folder.path / "pictures");
    CHECK(index.conditioning_folder.empty());
    index.entries[0].conditioning = "of metadata.png";
    take_conditioning(index, folder.path / "images");
    std::vector<std::string> taken;
    for (const picture_entry& entry : index.entries) { taken.push_back(entry.conditioning); }
    CHECK(taken == std::vector<std::string>{"a.png", "a.old.JPG", "dog/a.Webp", "dog/big/1.5.gif"});
    CHECK(conditioning_name(index, 2) == folder.quoted("images/dog/a.Webp"));

    // A folder that does not match leaves the index as it was.
    const auto keeps = [&](const std::string& name, const std::string& why) {
        CHECK(refusal_by([&] { take_conditioning(index, folder.path / name); }) == why);
        CHECK(conditioning_name(index, 0) == folder.quoted("images/a.png"));
    };
    keeps("nothing", folder.quoted("nothing") + " is not a folder");
    folder.add("few/dog/a.png", "x");
    keeps("few", folder.quoted("pictures/a.jpg") + " has no conditioning image in " + folder.quoted("few") +
                     "; 3 of 4 pictures have none");
    folder.add("images/dog/a.bmp", "x");
    keeps("images", folder.quoted("pictures/dog/a.jpg") + " has two conditioning images, " +
                        folder.quoted("images/dog/a.Webp") + " and " + folder.quoted("images/dog/a.bmp") +
                        ": it is not clear which one is meant");
    folder.add("shards/s.tar",
               pulse::test::tar_file("a.png", "x") + pulse::test::tar_file("a.txt", "a") + pulse::test::tar_end());
    picture_index shards = open_pictures(folder.path / "shards");
    CHECK(refusal_by([&] { take_conditioning(shards, folder.path / "images"); }) ==
          folder.quoted("shards") + " holds shards: conditioning images in " + folder.quoted("images") +
              " are found by file name, but these pictures are not files");
    CHECK(
        refusal_by([&] { require_conditioning(shards); }).starts_with('\'' + (folder.path / "shards/s.tar").string()));
}

TEST_CASE("a picture that is its own conditioning image is seen twice alike") {
    for (const auto& [width, height] : {std::array{31, 23}, std::array{12, 40}, std::array{8, 8}}) {
        const conditioned_folder folder;
        const std::string file = encode_png(some_picture(width, height));
        for (const bool chance : {true, false}) {
            picture_options options = by_chance;
            options.random_crop = options.horizontal_flip = chance;
            const captioned_pictures pictures = one_conditioned(folder, file, file, options);
            for (std::uint64_t position = 0; position != 60; ++position) {
                const picture_sample seen = pictures.at(position);
                const auto image = conditioning_of(pictures, 0, position, {seen.original_height, seen.original_width},
                                                   pictures.size_of(0));
                CHECK(distance(seen.pixels, image) < 1e-6F);
            }
        }
    }
}

TEST_CASE("a larger conditioning image is seen in the same crop, in a multiple of the picture's size") {
    for (const auto& [width, height] : {std::array{31, 23}, std::array{24, 40}}) {
        for (const int factor : {2, 3}) {
            const conditioned_folder folder;
            const auto smooth = some_picture(width, height, 1, 1);
            const captioned_pictures pictures =
                one_conditioned(folder, encode_png(smooth), encode_png(enlarged(smooth, factor)), by_chance);
            const extent size{12 * factor, 10 * factor};
            for (std::uint64_t position = 0; position != 40; ++position) {
                const picture_sample seen = pictures.at(position);
                const auto image = conditioning_of(pictures, 0, position, {height, width}, size);
                REQUIRE(image.size() == static_cast<std::size_t>(size.height * size.width * 3));
                // A shift by one pixel would be 0.03 or more.
                CHECK(distance(seen.pixels, means(image, size, factor)) < 0.02F);
            }
            for (const extent wrong : {extent{13, 10}, extent{24, 10}, extent{6, 5}, extent{0, 0}}) {
                CHECK_THROWS_AS((void)conditioning_of(pictures, 0, 0, {height, width}, wrong), pulse::error);
            }
        }
    }
}

TEST_CASE("a conditioning image of another shape than its picture's is refused by name, one rounded to it is not") {
    const conditioned_folder folder;
    const std::string picture = encode_png(some_picture(20, 16));
    const auto refused = [&](const std::string& image, const picture_limits& limits = {}) {
        picture_options options = by_chance;
        options.limits = limits;
        const captioned_pictures pictures = one_conditioned(folder, picture, image, options);
        return refusal_by([&] { (void)conditioning_of(pictures, 0, 3, {16, 20}, {12, 10}); });
    };
    const std::string name = folder.quoted("hint/a.png");
    for (const auto& [width, height] :
         {std::array{20, 16}, std::array{40, 32}, std::array{41, 32}, std::array{40, 33}, std::array{7, 6}}) {
        CHECK(refused(encode_png(some_picture(width, height))) == "none");
    }
    for (const auto& [width, height] :
         {std::array{16, 20}, std::array{20, 18}, std::array{44, 32}, std::array{200, 171}, std::array{1, 90}}) {
        CHECK(refused(encode_png(some_picture(width, height))) ==
              name + ": " + std::to_string(width) + " x " + std::to_string(height) +
                  " pixels do not have the shape of " + folder.quoted("a.png") + ", which has 20 x 16 pixels");
    }
    // Its orientation turns it onto its side.
    CHECK(refused(pulse::test::png_with_exif(some_picture(16, 20), pulse::test::exif_with(6))) == "none");
    CHECK(refused("no picture") == name + ": neither JPEG, PNG, WebP, GIF nor BMP");
    CHECK(refused(picture, {.most_pixels = 319}).starts_with(name + ": 20 x 16 pixels exceed the limit"));
    CHECK(refused(picture, {.most_file_bytes = 10}).starts_with(name + ": "));

    const captioned_pictures pictures = one_conditioned(folder, picture, "no picture", by_chance);
    const auto refused_by_header = [&](const captioned_pictures& of, const picture_size& picture_has) {
        return refusal_by([&] { check_conditioning(of.index(), std::array{picture_has}); });
    };
    CHECK(refused_by_header(pictures, {20, 16}) ==
          name + ": neither JPEG, PNG, WebP, GIF nor BMP; 1 of 1 conditioning images cannot be read");
    // A header check sees the orientation if it comes before the pixels.
    const std::string plain = encode_png(some_picture(16, 20));
    const std::string behind = pulse::test::png_with_exif(some_picture(16, 20), pulse::test::exif_with(6));
    const std::size_t orientation = behind.size() - plain.size();
    std::string before = plain;
    before.insert(8 + 25, behind.substr(behind.size() - 12 - orientation, orientation));
    const captioned_pictures lying = one_conditioned(folder, picture, before, by_chance);
    CHECK_NOTHROW(check_conditioning(lying.index(), std::array{picture_size{20, 16}}));
    CHECK_NOTHROW(check_conditioning(lying.index(), std::array{picture_size{}}));
    CHECK(refused_by_header(lying, {16, 20}) ==
          name + ": 20 x 16 pixels do not have the shape of " + folder.quoted("a.png") + ", which has 16 x 20 pixels");

    folder.add("metadata.jsonl", R"({"file_name":"a.png","text":"a"})");
    std::filesystem::remove_all(folder.path / "hint");
    const captioned_pictures without{open_pictures(folder.path), by_chance};
    CHECK(refusal_by([&] {
              (void)conditioning_of(without, 0, 0, {16, 20}, {12, 10});
          }) == folder.quoted("a.png") + " has no conditioning image");
}

TEST_CASE("a grey conditioning image has three channels alike, whatever the picture has") {
    pulse::io::picture grey{.width = 20, .height = 16, .channels = 1};
    for (int i = 0; i != 20 * 16; ++i) { grey.pixels.push_back(static_cast<std::uint8_t>(i * 7)); }
    for (const int channels : {1, 3}) {
        const conditioned_folder folder;
        picture_options options = by_chance;
        options.channels = channels;
        const captioned_pictures pictures =
            one_conditioned(folder, encode_png(some_picture(20, 16)), encode_png(grey), options);
        const auto image = conditioning_of(pictures, 0, 1, {16, 20}, {24, 20});
        REQUIRE(image.size() == 24 * 20 * 3);
        CHECK(pictures.at(1).pixels.size() == static_cast<std::size_t>(12 * 10 * channels));
        for (std::size_t i = 0; i != image.size(); ++i) {
            CHECK(image[i] == image[i / 3 * 3]);
            CHECK((image[i] >= 0.0F && image[i] <= 1.0F));
        }
    }
}
