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
            CHECK(a.elements() * (reads_text ? 4 : 1) == b.elements() * (reads_text ? 3 : 1)); // 768 instead of 1024
        }
    }
    CHECK(older.context == std::vector<int>{77, 768});
    REQUIRE(older.graph.skips.size() == newer.graph.skips.size());
    for (std::size_t e = 0; e != older.graph.skips.size(); ++e) {
        CHECK(older.graph.skips[e].from == newer.graph.skips[e].from);
        CHECK(older.graph.skips[e].to == newer.graph.skips[e].to);
    }
}

TEST_CASE("every flaw of a unet_config with transformers is found") {
    CHECK_BOTH(flaw_of(sd15::config) == unet_flaw::none);
    const auto flaw_after = [](auto change) {
        unet_config c = sd21::config;
        change(c);
        return flaw_of(c);
    };
    CHECK(flaw_after([](unet_config&) {}) == unet_flaw::none);
    CHECK(flaw_after([](unet_config& c) { c.mid_block_attention = true; }) == unet_flaw::transformers);
    CHECK(flaw_after([](unet_config& c) { c.attention[1] = true; }) == unet_flaw::transformers);
    using blocks = one_or_each<one_or_each<int>>;
    for (const blocks& wrong : {blocks{1, 1, 1, 0, 1}, blocks{-1, 1, 1}, blocks{{1, 0}, {1, 1}, 1},
                                blocks{{1, 2, 3}, 1, 1}, blocks{{1, 1}, 1, 1}}) {
        CHECK(flaw_after([&](unet_config& c) { c.transformer_layers_per_block = wrong; }) == unet_flaw::transformers);
    }
    // If the way down has a list, the way up needs its own: one number more, and for the same levels.
    const auto flaw_of_up = [&](const blocks& up) {
        return flaw_after([&](unet_config& c) {
            c.transformer_layers_per_block = {{1, 2}, 1, 1};
            c.reverse_transformer_layers_per_block = up;
        });
    };
    CHECK(flaw_of_up({0, 3, 1, {1, 2, 3}}) == unet_flaw::none);
    for (const blocks& wrong : {blocks{0, 3, 1, {1, 2}}, blocks{1, 3, 1, 1}, blocks{0, 0, 1, 1}, blocks{0, 3, 1}}) {
        CHECK(flaw_of_up(wrong) == unet_flaw::transformers);
    }
    CHECK(flaw_after([](unet_config& c) { c.mid_block_resnets = 3; }) == unet_flaw::middle);
    CHECK(flaw_after([](unet_config& c) { c.mid_block_resnets = 1; }) == unet_flaw::middle);
    CHECK(flaw_after([](unet_config& c) { c.transformer_heads = {5, 10, 20, 20, 20}; }) == unet_flaw::heads);
    CHECK(flaw_after([](unet_config& c) { c.transformer_heads = {5, 10, -20}; }) == unet_flaw::heads);
    CHECK(flaw_after([](unet_config& c) { c.mid_block_transformer_layers = -1; }) == unet_flaw::sizes);
    CHECK(flaw_after([](unet_config& c) { c.cross_attention_dim = -1; }) == unet_flaw::sizes);
    CHECK(flaw_after([](unet_config& c) { c.encoder_hid_dim = -1; }) == unet_flaw::sizes);
    CHECK(flaw_after([](unet_config& c) { c.context_tokens = 0; }) == unet_flaw::sizes);
    CHECK(flaw_after([](unet_config& c) { c.transformer_head_dim = 0; }) == unet_flaw::sizes);
    CHECK(flaw_after([](unet_config& c) { c.projection_class_embeddings_input_dim = -1; }) == unet_flaw::sizes);
    CHECK(flaw_after([](unet_config& c) { c.transformer_heads = 7; }) == unet_flaw::heads);
    CHECK(flaw_after([](unet_config& c) { c.transformer_head_dim = 2000; }) == unet_flaw::heads);
    CHECK(flaw_after([](unet_config& c) { c.cross_attention_dim = 0; }) == unet_flaw::text);
    const auto without_transformers = [](unet_config& c) {
        c.transformer_layers_per_block = {};
        c.mid_block_transformer_layers = 0;
    };
    CHECK(flaw_after(without_transformers) == unet_flaw::text);
    const auto flaw_of_plain = [&](auto change) {
        return flaw_after([&](unet_config& c) {
            without_transformers(c);
            c.cross_attention_dim = 0;
            change(c);
        });
    };
    CHECK(flaw_of_plain([](unet_config&) {}) == unet_flaw::none);
    CHECK(flaw_of_plain([](unet_config& c) { c.encoder_hid_dim = 8; }) == unet_flaw::text);
    CHECK(flaw_of_plain([](unet_config& c) { c.projection_class_embeddings_input_dim = 8; }) == unet_flaw::text);
    // Six sizes of addition_time_embed_dim features each, and at least one feature of pooled text.
    const auto flaw_of_added = [&](int projection, int features) {
        return flaw_after([&](unet_config& c) {
            c.projection_class_embeddings_input_dim = projection;
            c.addition_time_embed_dim = features;
        });
    };
    CHECK(flaw_of_added(25, 4) == unet_flaw::none);
    CHECK(flaw_of_added(24, 4) == unet_flaw::sizes);
    CHECK(flaw_of_added(25, 3) == unet_flaw::sizes);
    CHECK(flaw_of_added(25, 0) == unet_flaw::sizes);
}
