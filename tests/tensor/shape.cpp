#include <cstdint>
#include <type_traits>

#include <support/check_both.hpp>

#include <pulse/tensor/shape.hpp>

/// Has the members of a shape, but is none.
struct lookalike {
    static constexpr std::int64_t elements = 4;
};

TEST_SUITE("constexpr") {

    TEST_CASE("a shape knows its rank, its dimensions and its elements") {
        using image = pulse::shape<3, 32, 16>;
        CHECK_BOTH(image::rank == 3);
        CHECK_BOTH(image::dims[0] == 3 && image::dims[1] == 32 && image::dims[2] == 16);
        CHECK_BOTH(image::elements == 3 * 32 * 16);
        CHECK_BOTH(pulse::shape<>::rank == 0);
        CHECK_BOTH(pulse::shape<>::elements == 1);
    }

    TEST_CASE("elements do not overflow an int") {
        CHECK_BOTH(pulse::shape<65536, 65536>::elements == std::int64_t{1} << 32);
    }

    TEST_CASE("shapes are equal when their dimensions are") {
        CHECK_BOTH(std::is_same_v<pulse::shape<4, 8>, pulse::shape<4, 8>>);
        CHECK_BOTH(!std::is_same_v<pulse::shape<4, 8>, pulse::shape<8, 4>>);
        CHECK_BOTH(std::is_empty_v<pulse::shape<4, 8>>);
    }

    TEST_CASE("only a pulse::shape is a static shape") {
        CHECK_BOTH(pulse::static_shape<pulse::shape<4>>);
        CHECK_BOTH(!pulse::static_shape<int>);
        CHECK_BOTH(lookalike::elements == pulse::shape<4>::elements);
        CHECK_BOTH(!pulse::static_shape<lookalike>);
        CHECK_BOTH(!pulse::static_shape<pulse::shape<4>&>);
    }

} // TEST_SUITE
