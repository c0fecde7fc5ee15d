#include "facts.hpp"

#include <support/check_both.hpp>
#include <pulse/zoo/ddpm.hpp>

using namespace pulse;

TEST_CASE("ddpm_fmnist equals its table in every name, shape, edge, count and FLOP") {
    test::check_against_table(test::model_facade_of<ddpm_fmnist>());
    CHECK_BOTH(ddpm_fmnist::parameter_count() == 1'623'169);
}

TEST_CASE("ddpm_cifar10 equals its table in every name, shape, edge, count and FLOP") {
    test::check_against_table(test::model_facade_of<ddpm_cifar10>());
    CHECK_BOTH(ddpm_cifar10::parameter_count() == 35'746'307);
}

TEST_CASE("every flaw of a unet_config is found") {
    constexpr unet_config good = ddpm_fmnist::config;
    CHECK_BOTH(flaw_of(good) == unet_flaw::none);
    CHECK_BOTH(flaw_of(ddpm_cifar10::config) == unet_flaw::none);
    const auto flaw_after = [](auto change) {
        unet_config c = ddpm_fmnist::config;
        change(c);
        return flaw_of(c);
    };
    CHECK(flaw_after([](unet_config& c) { c.name = {}; }) == unet_flaw::name);
    CHECK(flaw_after([](unet_config& c) { c.block_out_channels = {}; }) == unet_flaw::levels);
    CHECK(flaw_after([](unet_config& c) { c.block_out_channels = {32, 0, 64}; }) == unet_flaw::levels);
    CHECK(flaw_after([](unet_config& c) { c.attention[3] = true; }) == unet_flaw::attention);
    CHECK(flaw_after([](unet_config& c) { c.sample_size = 0; }) == unet_flaw::sizes);
    CHECK(flaw_after([](unet_config& c) { c.in_channels = 0; }) == unet_flaw::sizes);
    for (const one_or_each<int>& wrong : {one_or_each<int>{0}, {2, 2}, {2, 2, 2, 2}}) {
        CHECK(flaw_after([&](unet_config& c) { c.layers_per_block = wrong; }) == unet_flaw::sizes);
    }
    CHECK(flaw_after([](unet_config& c) { c.layers_per_block = {1, 2, 3}; }) == unet_flaw::none);
    CHECK(flaw_after([](unet_config& c) { c.mid_block_resnets = 1; }) == unet_flaw::middle);
    CHECK(flaw_after([](unet_config& c) { c.block_out_channels = {32, -64, 64}; }) == unet_flaw::sizes);
    CHECK(flaw_after([](unet_config& c) { c.sample_size = 30; }) == unet_flaw::halving);
    CHECK(flaw_after([](unet_config& c) { c.norm_num_groups = 12; }) == unet_flaw::groups);
    CHECK(flaw_after([](unet_config& c) { c.attention_head_dim = 24; }) == unet_flaw::heads);
    CHECK(flaw_after([](unet_config& c) { c.downsample_padding = 2; }) == unet_flaw::padding);
    CHECK(flaw_after([](unet_config& c) { c.freq_shift = 16; }) == unet_flaw::sinusoid);
}
