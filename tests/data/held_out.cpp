#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/held_out.hpp>
#include <pulse/data/picture_index.hpp>

using namespace pulse::data;

namespace {

picture_index pictures_called(const std::vector<std::string>& names) {
    picture_index index;
    index.folder = "folder";
    for (const std::string& name : names) { index.entries.push_back({.name = name, .repeats = 3}); }
    index.repeats["folder"] = 3;
    return index;
}
std::vector<std::string> numbered(int count) {
    std::vector<std::string> names;
    for (int i = 0; i != count; ++i) { names.push_back("picture " + std::to_string(i) + ".png"); }
    return names;
}
std::vector<std::string> part_of(const std::vector<std::string>& names, double share, picture_part part) {
    picture_index index = pictures_called(names);
    keep_part(index, share, part);
    std::vector<std::string> kept;
    for (const picture_entry& entry : index.entries) {
        CHECK(entry.repeats == (part == picture_part::held_out ? 1 : 3));
        kept.push_back(entry.name);
    }
    CHECK(index.repeats.empty() == (part == picture_part::held_out));
    return kept;
}

} // namespace

TEST_CASE("a share of the pictures is held out of those that are trained on") {
    const std::vector<std::string> names = numbered(1000);
    for (const double share : {0.0001, 0.01, 0.1, 0.5, 0.999}) {
        CAPTURE(share);
        const auto held = part_of(names, share, picture_part::held_out);
        const auto rest = part_of(names, share, picture_part::trained_on);
        CHECK(held.size() == std::max<std::size_t>(1, static_cast<std::size_t>(share * 1000 + 0.5)));
        std::set<std::string> all{held.begin(), held.end()};
        all.insert(rest.begin(), rest.end());
        CHECK(all.size() == held.size() + rest.size());
        CHECK(all.size() == names.size());
        // In their original order.
        const auto at = [&](const std::string& name) { return std::stoi(name.substr(8)); };
        CHECK(std::ranges::is_sorted(held, {}, at));
        CHECK(std::ranges::is_sorted(rest, {}, at));
    }
    // Spread over all names: each tenth has some, on average 20 with a standard deviation of 4.
    const auto held = part_of(names, 0.2, picture_part::held_out);
    for (int tenth = 0; tenth != 10; ++tenth) {
        const auto here = std::ranges::count_if(
            held, [&](const std::string& name) { return std::stoi(name.substr(8)) / 100 == tenth; });
        CHECK(here > 6);
        CHECK(here < 34);
    }
}

TEST_CASE("pictures that are added or removed hardly change which are held out, and what has one name stays together") {
    std::vector<std::string> names = numbered(1000);
    const auto before = part_of(names, 0.1, picture_part::held_out);
    names.resize(950);
    names.push_back("another.png");
    const auto now = part_of(names, 0.1, picture_part::held_out);
    const std::set<std::string> had{before.begin(), before.end()};
    const auto stayed = std::ranges::count_if(now, [&](const std::string& name) { return had.contains(name); });
    CHECK(stayed >= 85);

    std::vector<std::string> twice;
    for (const std::string& name : numbered(30)) { twice.insert(twice.end(), 4, name); }
    for (const double share : {0.01, 0.11, 0.3}) {
        const auto held = part_of(twice, share, picture_part::held_out);
        CHECK(held.size() % 4 == 0);
        for (const std::string& name : held) { CHECK(std::ranges::count(held, name) == 4); }
    }
}

TEST_CASE("pictures that would all be held out are refused") {
    for (const picture_part part : {picture_part::held_out, picture_part::trained_on}) {
        picture_index one = pictures_called({"a.png"});
        CHECK_THROWS_WITH_AS(keep_part(one, 0.1, part),
                             "'folder' has 1 pictures; with 1 held out, none are left to train on", pulse::input_error);
        picture_index two = pictures_called({"a.png", "b.png"});
        CHECK_THROWS_AS(keep_part(two, 0.99, part), pulse::input_error);
    }
}
