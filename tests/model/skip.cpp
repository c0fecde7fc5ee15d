#include <support/check_both.hpp>

#include <pulse/model/skip.hpp>

namespace skip_test {

namespace {

template <class... T>
concept makes_skips = requires {
    typename pulse::skips<T...>;
};

using encoder_to_decoder = pulse::skip<"encoder", "decoder">;
struct named_skip : pulse::skip<"a", "b"> {};

} // namespace

TEST_SUITE("constexpr") {

    TEST_CASE("a skip names its two ends") {
        CHECK_BOTH(encoder_to_decoder::from.view() == "encoder");
        CHECK_BOTH(encoder_to_decoder::to.view() == "decoder");
        CHECK_BOTH(pulse::skip_edge<encoder_to_decoder>);
        CHECK_BOTH(pulse::skip_edge<named_skip>);
        CHECK_BOTH(!pulse::skip_edge<int>);
    }

    TEST_CASE("skips keep their order, and take skips only") {
        using two = pulse::skips<encoder_to_decoder, named_skip>;
        CHECK_BOTH(two::count == 2);
        CHECK_BOTH(two::ends[0] == pulse::skip_ends{"encoder", "decoder"});
        CHECK_BOTH(two::ends[1] == pulse::skip_ends{"a", "b"});
        CHECK_BOTH(pulse::skips<>::count == 0);
        CHECK_BOTH(makes_skips<encoder_to_decoder>);
        CHECK_BOTH(!makes_skips<encoder_to_decoder, int>);
    }

} // TEST_SUITE

} // namespace skip_test
