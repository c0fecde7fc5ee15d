#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/data/shuffle_tags.hpp>
#include <pulse/io/png.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

using namespace pulse::data;

TEST_CASE("tags are shuffled behind those that stay, every order as often as another") {
    constexpr int draws = 6000;
    std::map<std::string, int> seen;
    for (std::uint64_t seed = 0; seed != draws; ++seed) {
        const std::string shuffled = shuffle_tags(" cat ,red, blue,\tgreen ", 1, seed);
        REQUIRE(shuffled.starts_with("cat, "));
        ++seen[shuffled];
        CHECK(shuffle_tags(" cat ,red, blue,\tgreen ", 1, seed) == shuffled);
    }
    CHECK(seen.size() == 6);
    for (const auto& one : seen) {
        CAPTURE(one.first);
        CHECK(one.second > 850); // 1000 expected, with a standard deviation of 29
        CHECK(one.second < 1150);
    }
    for (const std::size_t kept : {std::size_t{3}, std::size_t{4}, std::size_t{99}}) {
        CHECK(shuffle_tags("cat,red, blue , green", kept, 7) == "cat, red, blue, green");
    }
    CHECK(shuffle_tags("", 0, 1).empty());
    CHECK(shuffle_tags(" , ,,", 2, 1).empty());
    CHECK(shuffle_tags("a red cat", 0, 1) == "a red cat");
    CHECK(shuffle_tags(",a,", 0, 1) == "a");
}

TEST_CASE("the order of tags is a function of the seed and the position, and changes nothing else") {
    const pulse::test::scratch folder;
    for (int i = 0; i != 3; ++i) {
        pulse::test::put(folder.path / (std::to_string(i) + ".png"),
                         pulse::io::encode_png(pulse::test::some_picture(8, 8, static_cast<unsigned>(i + 1))));
        pulse::test::put(folder.path / (std::to_string(i) + ".txt"), std::to_string(i) + ", a, b, c, d, e, f");
    }
    picture_options options{.height = 8, .width = 8, .seed = 4, .random_crop = true, .caption_dropout = 0.3};
    const captioned_pictures plain{open_pictures(folder.path), options};
    options.shuffle_tags_behind = 1;
    const captioned_pictures shuffled{open_pictures(folder.path), options};
    const captioned_pictures again{open_pictures(folder.path), options};
    std::set<std::string> orders;
    int dropped = 0;
    for (std::uint64_t position = 40; position-- != 0;) {
        picture_sample sample = shuffled.at(position);
        CHECK(again.at(position) == sample);
        CHECK(again.caption_at(position).caption == sample.caption);
        const picture_sample other = plain.at(position);
        dropped += sample.caption_dropped ? 1 : 0;
        if (!sample.caption_dropped) {
            CHECK(sample.caption.starts_with(std::to_string(sample.index) + ", "));
            std::string letters = sample.caption.substr(3);
            orders.insert(letters);
            std::ranges::sort(letters);
            std::string wanted = other.caption.substr(3);
            std::ranges::sort(wanted);
            CHECK(letters == wanted);
        }
        sample.caption = other.caption;
        CHECK(sample == other);
    }
    CHECK(dropped > 3);
    CHECK(orders.size() > 15);
    options.shuffle_tags_behind = -1;
    CHECK_THROWS_AS((captioned_pictures{open_pictures(folder.path), options}), pulse::input_error);
}
