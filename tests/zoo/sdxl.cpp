#include "facts.hpp"

#include <support/check_both.hpp>
#include <pulse/zoo/sdxl.hpp>

using namespace pulse;

TEST_CASE("sdxl_fine equals its table in every name, shape, edge, residual, count, FLOP and kept tensor") {
    test::check_against_table(test::model_facade_of<sdxl_fine>());
    CHECK_BOTH(sdxl_fine::parameter_count() == 2'567'463'684);
    CHECK_BOTH(sdxl_fine::layer_count == 115);
    CHECK_BOTH(sdxl_fine::skip_count == 9 + 11);
}

TEST_CASE("a layer of sdxl is the layers of sdxl_fine that it is cut into") {
    const test::model_facade coarse = test::model_facade_of<sdxl>();
    const test::model_facade fine = test::model_facade_of<sdxl_fine>();
    test::check_totals(coarse, 2'567'463'684, 1680);
    CHECK_BOTH(sdxl::layer_count == 34);
    CHECK_BOTH(sdxl::skip_count == 9);

    std::vector<std::size_t> coarse_of(fine.layers.size());
    std::size_t next = 0;
    for (std::size_t c = 0; c != coarse.layers.size(); ++c) {
        const test::layer_facade& whole = coarse.layers[c];
        CAPTURE(whole.name);
        test::layer_facade sum{};
        const std::size_t first = next;
        while (next != fine.layers.size() &&
               (fine.layers[next].name == whole.name || fine.layers[next].name.rfind(whole.name + ".", 0) == 0)) {
            const test::layer_facade& part = fine.layers[next];
            sum.flops += part.flops;
            sum.kept += part.kept;
            sum.parameters.insert(sum.parameters.end(), part.parameters.begin(), part.parameters.end());
            coarse_of[next++] = c;
        }
        REQUIRE(next != first);
        CHECK(fine.layers[first].in == whole.in);
        CHECK(fine.layers[next - 1].out == whole.out);
        CHECK(sum.flops == whole.flops);
        CHECK(sum.kept == whole.kept);
        CHECK(sum.parameters == whole.parameters);
    }
    CHECK(next == fine.layers.size());

    std::size_t residuals = 0;
    for (std::size_t e = 0; e != fine.graph.skips.size(); ++e) {
        const skip_link& edge = fine.graph.skips[e];
        const std::size_t from = coarse_of[static_cast<std::size_t>(edge.from)];
        const std::size_t to = coarse_of[static_cast<std::size_t>(edge.to)];
        if (edge.residual) {
            ++residuals;
            CHECK(from + 1 == to); // around a transformer, inside of which it disappears
        } else {
            CHECK(coarse.graph.skips[e].from == static_cast<int>(from));
            CHECK(coarse.graph.skips[e].to == static_cast<int>(to));
            CHECK(coarse.graph.skips[e].elements == edge.elements);
        }
    }
    CHECK(residuals == 11);
    CHECK(coarse.graph.conditioning_elements == fine.graph.conditioning_elements);
}
