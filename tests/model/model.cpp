#include <cstddef>
#include <type_traits>
#include <utility>

#include <support/archetype.hpp>
#include <support/check_both.hpp>

#include <pulse/core/error.hpp>
#include <pulse/model/model.hpp>

namespace model_test {

namespace {

using pulse::shape;

using in = archetype::layer<"in", shape<1>, shape<4>>;
using body = archetype::conditioned_layer<"body", shape<4>, shape<16>>;
using join = archetype::joining_layer<"join", shape<4>, shape<4>, shape<1>>;
using clock_module = archetype::module<"clock", shape<16>>;

struct tiny
    : pulse::model<"tiny", pulse::layers<in, body, join>, pulse::skips<pulse::skip<"in", "join">>, clock_module> {};

template <class Indices>
struct chain;
template <std::size_t... I>
struct chain<std::index_sequence<I...>> {
    using layers = pulse::layers<archetype::layer<pulse::label{"block."} + static_cast<unsigned>(I), shape<4>>...>;
};
struct long_chain : pulse::model<"long_chain", chain<std::make_index_sequence<100>>::layers> {};

template <class M, std::size_t I>
concept has_layer_at = requires {
    typename M::template layer_at<I>;
};

} // namespace

TEST_SUITE("constexpr") {

    TEST_CASE("a model knows its parts") {
        CHECK_BOTH(pulse::any_model<tiny>);
        CHECK_BOTH(!pulse::any_model<in>);
        CHECK_BOTH(tiny::name.view() == "tiny");
        CHECK_BOTH(tiny::layer_count == 3);
        CHECK_BOTH(tiny::skip_count == 1);
        CHECK_BOTH(tiny::is_conditioned);
        CHECK_BOTH(!long_chain::is_conditioned);
        CHECK_BOTH(std::is_same_v<tiny::conditioning, clock_module>);
        CHECK_BOTH(std::is_same_v<tiny::layer_at<0>, in>);
        CHECK_BOTH(std::is_same_v<tiny::layer_at<1>, body>);
        CHECK_BOTH(std::is_same_v<tiny::layer_at<2>, join>);
        CHECK_BOTH(!has_layer_at<tiny, 3>);
        CHECK_BOTH(std::is_empty_v<tiny>);
    }

    TEST_CASE("layers are found by name") {
        CHECK_BOTH(tiny::index_of("in") == 0);
        CHECK_BOTH(tiny::index_of("join") == 2);
        CHECK_BOTH(long_chain::index_of("block.99") == 99);
    }

    TEST_CASE("parameters are counted, the conditioning module's included") {
        CHECK_BOTH(tiny::parameter_count() == 3 * 8 + 100);
        CHECK_BOTH(long_chain::parameter_count() == 800);
    }

    TEST_CASE("a model made from a pack has every layer in its place") {
        []<std::size_t... I>(std::index_sequence<I...>) {
            CHECK_BOTH((... && (long_chain::layer_at<I>::name == pulse::label{"block."} + static_cast<unsigned>(I))));
            // each search visits all layers, which the compiler is slow at: checks every ninth layer only
            CHECK_BOTH((... && (I % 9 != 0 || long_chain::index_of(long_chain::layer_at<I>::name) == I)));
        }
        (std::make_index_sequence<long_chain::layer_count>{});
    }

} // TEST_SUITE

TEST_CASE("an unknown name is an input error that names model and layer") {
    CHECK_THROWS_WITH_AS(static_cast<void>(tiny::index_of("out")), "pulse: model tiny has no layer out",
                         pulse::input_error);
}

} // namespace model_test
