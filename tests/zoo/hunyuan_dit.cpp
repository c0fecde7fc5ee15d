#include "facts.hpp"

#include <support/check_both.hpp>
#include <pulse/zoo/hunyuan_dit.hpp>

using namespace pulse;

TEST_CASE("hunyuan_dit_v12 equals its table in every name, shape, edge, count, FLOP and kept tensor") {
    test::check_against_table(test::model_facade_of<hunyuan_dit_v12>());
    CHECK_BOTH(hunyuan_dit_v12::parameter_count() == 1'499'952'032);
    CHECK_BOTH(hunyuan_dit_v12::layer_count == 42);
}

TEST_CASE("hunyuan_dit_v11 is version 1.2 and an embedding of style and sizes") {
    const test::model_facade older = test::model_facade_of<hunyuan_dit_v11>();
    const test::model_facade newer = test::model_facade_of<hunyuan_dit_v12>();
    test::check_totals(older, 1'516'534'048, 1544 + 1);
    CHECK_BOTH(hunyuan_dit_v11::parameter_count() == 1'516'534'048);
    REQUIRE(older.layers.size() == newer.layers.size());
    for (std::size_t l = 0; l != older.layers.size(); ++l) {
        CHECK(older.layers[l].name == newer.layers[l].name);
        CHECK(older.layers[l].parameters == newer.layers[l].parameters);
        CHECK(older.layers[l].flops == newer.layers[l].flops);
        CHECK(older.layers[l].saved == newer.layers[l].saved);
    }
    REQUIRE(older.modules.size() == 2);
    const double inputs_more = 6 * 256 + 1408;
    CHECK(older.modules[0].flops == newer.modules[0].flops + 2.0 * inputs_more * 4 * 1408);
    CHECK(older.modules[1].parameters == newer.modules[1].parameters);
    CHECK(older.graph.conditioning_elements == newer.graph.conditioning_elements);
}

TEST_CASE("every flaw of a hunyuan_dit_config is found") {
    const auto flaw_after = [](auto change) {
        hunyuan_dit_config c = hunyuan_dit_v12::config;
        change(c);
        return flaw_of(c);
    };
    CHECK(flaw_after([](hunyuan_dit_config&) {}) == hunyuan_dit_flaw::none);
    CHECK(flaw_after([](hunyuan_dit_config& c) { c.name = {}; }) == hunyuan_dit_flaw::name);
    CHECK(flaw_after([](hunyuan_dit_config& c) { c.mlp_hidden = 0; }) == hunyuan_dit_flaw::sizes);
    CHECK(flaw_after([](hunyuan_dit_config& c) { c.text_len_t5 = -1; }) == hunyuan_dit_flaw::sizes);
    CHECK(flaw_after([](hunyuan_dit_config& c) { c.patch_size = 3; }) == hunyuan_dit_flaw::patches);
    CHECK(flaw_after([](hunyuan_dit_config& c) { c.num_layers = 39; }) == hunyuan_dit_flaw::depth);
    CHECK(flaw_after([](hunyuan_dit_config& c) { c.num_layers = 2; }) == hunyuan_dit_flaw::depth);
    CHECK(flaw_after([](hunyuan_dit_config& c) { c.num_attention_heads = 15; }) == hunyuan_dit_flaw::heads);
    CHECK(flaw_after([](hunyuan_dit_config& c) { c.num_attention_heads = 704; }) == hunyuan_dit_flaw::heads);
    CHECK(flaw_after([](hunyuan_dit_config& c) { c.cross_attention_dim_t5 = 2047; }) == hunyuan_dit_flaw::heads);
    CHECK(flaw_after([](hunyuan_dit_config& c) { c.rotary_span = 0.0; }) == hunyuan_dit_flaw::sizes);
}
