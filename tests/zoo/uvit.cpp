#include "facts.hpp"

#include <support/check_both.hpp>
#include <pulse/zoo/uvit.hpp>

using namespace pulse;

namespace {

/// Parameters of a U-ViT, by hand: a block has 12 D^2 + 10 D, a skip projection 2 D^2 + D.
constexpr std::int64_t parameters_of(const uvit_config& c) {
    const std::int64_t d = c.embed_dim;
    const std::int64_t patch = std::int64_t{c.patch_size} * c.patch_size * c.in_chans;
    const std::int64_t tokens =
        (c.img_size / c.patch_size) * (c.img_size / c.patch_size) + (c.num_classes != 0 ? 2 : 1);
    const std::int64_t ends = (patch + 1) * d + (c.num_classes + tokens) * d + 2 * d + (d + 1) * patch;
    const std::int64_t last = c.conv ? 9 * c.in_chans * c.in_chans + c.in_chans : 0;
    return (c.depth + 1) * (12 * d * d + 10 * d) + c.depth / 2 * (2 * d * d + d) + ends + last;
}

template <class M>
void check_uvit(std::int64_t parameters) {
    constexpr uvit_config c = M::config;
    const test::model_facade model = test::model_facade_of<M>();
    CHECK(parameters_of(c) == parameters);
    const auto blocks = static_cast<std::size_t>(c.depth + 1);
    const auto half = static_cast<std::size_t>(c.depth / 2);
    test::check_totals(model, parameters, 11 * blocks + 2 * half + (c.num_classes != 0 ? 4U : 3U) + (c.conv ? 6U : 4U));
    REQUIRE(model.layers.size() == blocks + 2);
    REQUIRE(model.graph.skips.size() == half);
    for (const skip_link& edge : model.graph.skips) { CHECK(edge.from + edge.to == c.depth + 2); }
    CHECK(model.modules.empty());
    CHECK(model.graph.conditioning_elements == 0);
    CHECK(model.layers.front().in == std::vector<int>{c.in_chans, c.img_size, c.img_size});
    CHECK(model.layers.back().out == model.layers.front().in);
}

} // namespace

TEST_CASE("uvit_h2 equals its table in every name, shape, edge, count, FLOP and kept tensor") {
    test::check_against_table(test::model_facade_of<uvit_h2>());
    check_uvit<uvit_h2>(500'832'016);
}

TEST_CASE("the other U-ViTs have their published sizes") {
    check_uvit<uvit_s2>(44'255'328);
    check_uvit<uvit_m4>(130'940'292);
    check_uvit<uvit_l2>(286'763'172);
}

TEST_CASE("a U-ViT that ends with a convolution saves its input and does its FLOPs") {
    constexpr uvit_config c = uvit_l2::config;
    using head = uvit_l2::layer_at<uvit_l2::layer_count - 1>;
    constexpr std::int64_t tokens = 258;
    constexpr std::int64_t image = 4 * 32 * 32;
    CHECK_BOTH(head::saved_elements == tokens * c.embed_dim + image);
    CHECK_BOTH(head::statistics_elements == 2 * tokens);
    CHECK_BOTH(eager_elements<head>() == 2 * tokens * c.embed_dim + image);
    CHECK_BOTH(head::forward_flops() == 2.0 * tokens * c.embed_dim * 16 + 2.0 * 9 * 4 * image);
    CHECK_BOTH(head::parameters().back().name.view() == "final_layer.bias");
}

TEST_CASE("every flaw of a uvit_config is found") {
    const auto flaw_after = [](auto change) {
        uvit_config c = uvit_s2::config;
        change(c);
        return flaw_of(c);
    };
    CHECK(flaw_after([](uvit_config&) {}) == uvit_flaw::none);
    CHECK(flaw_after([](uvit_config& c) { c.name = {}; }) == uvit_flaw::name);
    CHECK(flaw_after([](uvit_config& c) { c.embed_dim = 0; }) == uvit_flaw::sizes);
    CHECK(flaw_after([](uvit_config& c) { c.num_classes = -1; }) == uvit_flaw::sizes);
    CHECK(flaw_after([](uvit_config& c) { c.patch_size = 3; }) == uvit_flaw::patches);
    CHECK(flaw_after([](uvit_config& c) { c.depth = 13; }) == uvit_flaw::depth);
    CHECK(flaw_after([](uvit_config& c) { c.depth = 0; }) == uvit_flaw::depth);
    CHECK(flaw_after([](uvit_config& c) { c.num_heads = 7; }) == uvit_flaw::heads);
}
