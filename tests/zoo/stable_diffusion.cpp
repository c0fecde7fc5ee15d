#include "facts.hpp"

#include <support/check_both.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

using namespace pulse;

TEST_CASE("sd21 equals its table in every name, shape, edge, count, FLOP and kept tensor") {
    test::check_against_table(test::model_facade_of<sd21>());
    CHECK_BOTH(sd21::parameter_count() == 865'910'724);
}

TEST_CASE("sd15 is sd21 with 64x64 latents, shorter text states, 8 heads and convolutions as projections") {
    const test::model_facade older = test::model_facade_of<sd15>();
    const test::model_facade newer = test::model_facade_of<sd21>();
    test::check_totals(older, 859'520'964, 686);
    CHECK_BOTH(sd15::parameter_count() == 859'520'964);
    REQUIRE(older.layers.size() == newer.layers.size());
    for (std::size_t l = 0; l != older.layers.size(); ++l) {
        CHECK(older.layers[l].name == newer.layers[l].name);
        CHECK(older.layers[l].in[0] == newer.layers[l].in[0]);
        CHECK(older.layers[l].in[1] * 3 == newer.layers[l].in[1] * 2);
        REQUIRE(older.layers[l].parameters.size() == newer.layers[l].parameters.size());
        for (std::size_t p = 0; p != older.layers[l].parameters.size(); ++p) {
            const parameter& a = older.layers[l].parameters[p];
            const parameter& b = newer.layers[l].parameters[p];
            const std::string name = a.name.str();
            CHECK(name == b.name.str());
            const auto has = [&name](const char* part) { return name.find(part) != std::string::npos; };
            const bool reads_text = has(".attn2.to_k.") || has(".attn2.to_v.");
            const bool projects = has(".proj_in.weight") || has(".proj_out.weight");
            CHECK(a.rank == (projects ? 4 : b.rank));
            CHECK(a.elements() * (reads_text ? 4 : 1) == b.elements() * (reads_text ? 3 : 1)); // 768 for 1024
        }
    }
    CHECK(older.context == std::vector<int>{77, 768});
    REQUIRE(older.graph.skips.size() == newer.graph.skips.size());
    for (std::size_t e = 0; e != older.graph.skips.size(); ++e) {
        CHECK(older.graph.skips[e].from == newer.graph.skips[e].from);
        CHECK(older.graph.skips[e].to == newer.graph.skips[e].to);
    }
}
