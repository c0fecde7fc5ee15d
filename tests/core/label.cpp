#include <random>
#include <stdexcept>
#include <string>
#include <string_view>

#include <support/check_both.hpp>

#include <pulse/core/label.hpp>

namespace {

template <pulse::label Name>
struct tagged {
    static constexpr pulse::label name = Name;
};

// Named, because clang 14 crashes on a consteval constructor inside a doctest expression.
constexpr pulse::label conv_in{"conv_in"};
constexpr pulse::label conv{"conv"};
constexpr pulse::label nothing{};

} // namespace

TEST_SUITE("constexpr") {

    TEST_CASE("a label holds its text and can be a template argument") {
        CHECK_BOTH(conv_in.view() == "conv_in");
        CHECK_BOTH(tagged<"mid_block">::name.view() == "mid_block");
        CHECK_BOTH(nothing.empty());
        CHECK_BOTH(!conv_in.empty());
    }

    TEST_CASE("equal texts make equal labels, however they were made") {
        CHECK_BOTH(conv_in == pulse::label{std::string_view{"conv_in"}});
        CHECK_BOTH(conv + "_in" == conv_in);
        CHECK_BOTH(!(conv == conv_in));
    }

    TEST_CASE("a label takes numbers") {
        CHECK_BOTH((conv + 0U).view() == "conv0");
        CHECK_BOTH((conv + 4294967295U).view() == "conv4294967295");
    }

} // TEST_SUITE

TEST_CASE("joining labels is joining texts") {
    std::mt19937 random{7};
    std::uniform_int_distribution<int> length{0, 60};
    std::uniform_int_distribution<int> letter{'a', 'z'};
    const auto text = [&] {
        std::string s(static_cast<std::size_t>(length(random)), ' ');
        for (char& c : s) { c = static_cast<char>(letter(random)); }
        return s;
    };
    int refused = 0;
    for (int round = 0; round != 2000; ++round) {
        const std::string a = text();
        const std::string b = text();
        if (a.size() + b.size() < pulse::label::capacity) {
            CHECK((pulse::label{std::string_view{a}} + b).str() == a + b);
        } else {
            CHECK_THROWS_AS(static_cast<void>(pulse::label{std::string_view{a}} + b), std::length_error);
            ++refused;
        }
    }
    CHECK(refused > 0);
}

TEST_CASE("a text of 95 characters fits and one of 96 does not") {
    const std::string fits(pulse::label::capacity - 1, 'x');
    CHECK(pulse::label{std::string_view{fits}}.view() == fits);
    CHECK_THROWS_AS(pulse::label{std::string_view{fits + "x"}}, std::length_error);
    CHECK_THROWS_AS(static_cast<void>(pulse::label{std::string_view{fits}} + 1U), std::length_error);
}
