#include "facts.hpp"

#include <support/check_both.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/frozen_networks.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

using namespace pulse;

namespace {

/// Up reads an image twice as high and wide as Small's output, next to another one, and outputs one.
template <class Small, class Up>
void check_cascade() {
    constexpr auto small = graph_of<Small>();
    constexpr auto up = graph_of<Up>();
    CHECK_BOTH(Up::config.sample_size == 2 * Small::config.sample_size);
    using drawn = typename Small::template layer_at<Small::layer_count - 1>::output;
    CHECK_BOTH(Small::template layer_at<0>::input::elements == drawn::elements);
    CHECK_BOTH(Up::template layer_at<0>::input::elements == 2 * 4 * drawn::elements);
    CHECK_BOTH(Up::template layer_at<Up::layer_count - 1>::output::elements == 4 * drawn::elements);
    CHECK(small.view().layers.size() > 8);
    CHECK(up.view().layers.size() >= small.view().layers.size());
}

template <class Model>
constexpr bool draws_pixels() {
    using networks = frozen::networks_of<Model>;
    return networks::known && !frozen::has_autoencoder<networks> &&
           networks::picture_config.latent_size() == Model::config.sample_size &&
           networks::picture_config.in_channels == Model::config.out_channels &&
           networks::picture_config.latent_channels == Model::config.out_channels;
}

} // namespace

TEST_CASE("the second backbone of a cascade reads two images and draws one, twice as high and wide") {
    check_cascade<ddpm_fmnist_half, ddpm_fmnist_up>();
    check_cascade<sd_pixels_tiny, sd_pixels_up_tiny>();
    CHECK_BOTH(draws_pixels<sd_pixels_tiny>());
    CHECK_BOTH(draws_pixels<sd_pixels_up_tiny>());
}

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
