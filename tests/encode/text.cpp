#include <string>

#include <doctest/doctest.h>

#include <pulse/encode/tokenizer_text.hpp>

namespace {

using namespace pulse::encode;

/// Visits every code point that UTF-8 can encode.
template <class Each>
void for_every_point(const Each& each) {
    for (char32_t point = 0; point != 0x110000; ++point) {
        if (point < 0xd800 || point > 0xdfff) { each(point); }
    }
}

} // namespace

TEST_CASE("every code point comes back from UTF-8, and normal forms are stable") {
    std::u32string all{};
    for_every_point([&](char32_t point) { all.push_back(point); });
    CHECK(code_points(utf8(all), "all") == all);
    const std::u32string once = composed(all);
    CHECK(composed(once) == once);
    CHECK(composed(decomposed(all)) == once);
    CHECK(decomposed(once) == decomposed(all));
    CHECK(decomposed(U"é각") == U"e\u0301\u1100\u1161\u11a8");
    CHECK(composed(U"e\u0323\u0301") == U"ẹ\u0301");
}

TEST_CASE("lower case is stable but where Unicode makes two characters of one") {
    for_every_point([&](char32_t point) {
        const std::u32string lower = lower_case({&point, 1});
        REQUIRE(lower.size() == (point == 0x130 ? 2 : 1));
        REQUIRE(lower_case(lower) == lower);
    });
    CHECK(lower_case(U"ΟΔΟΣ Ç") == U"οδοσ ç");
}

TEST_CASE("white space is Unicode's White_Space") {
    int count = 0;
    for_every_point([&](char32_t point) { count += is_space(point) ? 1 : 0; });
    CHECK(count == 25);
    CHECK(is_space(0x3000));
    CHECK(is_space(0x85));
    CHECK_FALSE(is_space(0x200b));
    CHECK_FALSE(is_space(0x1f));
}
