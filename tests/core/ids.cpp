#include <concepts>

#include <support/check_both.hpp>

#include <pulse/core/ids.hpp>

TEST_SUITE("constexpr") {

    TEST_CASE("an id gives its number back") {
        CHECK_BOTH(pulse::index_of(pulse::stage_id{7}) == 7);
        CHECK_BOTH(pulse::index_of(pulse::edge_id{-1}) == -1);
    }

    TEST_CASE("ids of different kinds do not mix") {
        CHECK_BOTH(!std::convertible_to<pulse::stage_id, pulse::device_id>);
        CHECK_BOTH(!std::convertible_to<int, pulse::microbatch_id>);
        CHECK_BOTH(!std::convertible_to<pulse::microbatch_id, int>);
        CHECK_BOTH(pulse::stage_id{1} < pulse::stage_id{2});
    }

} // TEST_SUITE
