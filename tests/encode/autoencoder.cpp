#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <support/fits.hpp>
#include <pulse/core/error.hpp>
#include <pulse/encode/autoencoder.hpp>
#include <pulse/encode/chain.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/norm.hpp>
#include <pulse/nn/resnet.hpp>
#include <pulse/reference/backend.hpp>

using namespace pulse;
using namespace pulse::encode;
using oracle = reference::backend<double>;

namespace {

template <class M>
double flops_of() {
    double sum = 0.0;
    for (const layer_node& l : uncut_graph_of<M>().layers) { sum += l.forward_flops; }
    return sum;
}

/// The output of a model with random parameters for a random input at an extent.
template <class M>
std::vector<double> drawn_run(int samples, const extent& to = {}) {
    oracle on;
    const resizing size = resize<M>(to);
    chain<M, oracle> model{on, {}, size};
    std::mt19937_64 random{7};
    std::normal_distribution<double> draw;
    for (double& p : model.parameters()) { p = 0.3 * draw(random); }
    const auto graph = uncut_graph_of<M>(size);
    std::vector<double> x(static_cast<std::size_t>(samples * graph.layers.front().input_elements));
    for (double& v : x) { v = draw(random); }
    std::vector<double> y(static_cast<std::size_t>(samples * graph.layers.back().output_elements));
    model.run(samples, x.data(), y.data());
    return y;
}

/// Checks that a model gives the same bits if it runs another sample between layer `cut` and the next, for every cut,
/// and if it runs layer by layer.
template <class M>
void check_cuts() {
    oracle on;
    chain<M, oracle> model{on};
    std::mt19937_64 random{11};
    std::normal_distribution<double> draw;
    for (double& p : model.parameters()) { p = 0.3 * draw(random); }
    constexpr auto graph = uncut_graph_of<M>();
    std::vector<double> x[2];
    std::vector<double> whole[2];
    for (int i = 0; i != 2; ++i) {
        x[i].resize(static_cast<std::size_t>(graph.layers.front().input_elements));
        for (double& v : x[i]) { v = draw(random); }
        whole[i].resize(static_cast<std::size_t>(graph.layers.back().output_elements));
        model.run(1, x[i].data(), whole[i].data());
    }
    constexpr std::size_t last = M::layer_count - 1;
    std::vector<double> y(whole[0].size());
    for (std::size_t cut = 0; cut != last; ++cut) {
        CAPTURE(cut);
        std::vector<double> paused(static_cast<std::size_t>(graph.layers[cut].output_elements));
        model.run_layers(0, cut, x[0].data(), paused.data());
        model.run(1, x[1].data(), y.data());
        CHECK(y == whole[1]);
        const std::vector<double> before = paused;
        model.run_layers(cut + 1, last, paused.data(), y.data());
        CHECK(y == whole[0]);
        CHECK(paused == before);
    }
    std::vector<double> here = x[0];
    for (std::size_t l = 0; l <= last; ++l) {
        std::vector<double> next(static_cast<std::size_t>(graph.layers[l].output_elements));
        model.run_layers(l, l, here.data(), next.data());
        here = std::move(next);
    }
    CHECK(here == whole[0]);
}

/// Checks that two chains with alternate layers give the bits of one with all layers, and use only their layers'
/// memory.
template <class M>
void check_parts() {
    oracle on;
    chain<M, oracle> whole{on};
    std::vector<bool> layers[2];
    for (std::size_t l = 0; l != M::layer_count; ++l) {
        for (std::size_t i = 0; i != 2; ++i) { layers[i].push_back(l % 2 == i); }
    }
    for (const std::size_t flags : {M::layer_count - 1, M::layer_count + 1}) {
        CHECK_THROWS_AS((chain<M, oracle>{on, std::vector<bool>(flags, true)}), input_error);
    }
    chain<M, oracle> even{on, layers[0]};
    chain<M, oracle> odd{on, layers[1]};
    std::mt19937_64 random{12};
    std::normal_distribution<double> draw;
    double* to[2]{even.parameters().data(), odd.parameters().data()};
    std::int64_t most[2]{};
    double* p = whole.parameters().data();
    for (std::size_t l = 0; l != M::layer_count; ++l) {
        const chain_link link = links_of<M>()[l];
        for (std::int64_t i = 0; i != link.parameters; ++i) { *to[l % 2]++ = *p++ = 0.3 * draw(random); }
        most[l % 2] = std::max(most[l % 2], link.all());
    }
    chain<M, oracle>* const parts[2]{&even, &odd};
    for (std::size_t i = 0; i != 2; ++i) {
        CHECK(to[i] == parts[i]->parameters().data() + parts[i]->parameters().size());
        CHECK(parts[i]->used_bytes() == static_cast<std::int64_t>(sizeof(double) * parts[i]->parameters().size()) +
                                            8 * (most[i] + chain<M, oracle>::statistics_elements()));
    }
    constexpr auto graph = uncut_graph_of<M>();
    std::vector<double> here(static_cast<std::size_t>(graph.layers.front().input_elements));
    for (double& v : here) { v = draw(random); }
    std::vector<double> y(static_cast<std::size_t>(graph.layers.back().output_elements));
    whole.run(1, here.data(), y.data());
    for (std::size_t l = 0; l != M::layer_count; ++l) {
        std::vector<double> next(static_cast<std::size_t>(graph.layers[l].output_elements));
        parts[l % 2]->run_layers(l, l, here.data(), next.data());
        CHECK_THROWS_AS(parts[1 - l % 2]->run_layers(l, l, here.data(), next.data()), pulse::error);
        here = std::move(next);
    }
    CHECK(here == y);
}

template <auto Math>
using alone = model<"alone", layers<nn::block<"layer", Math>>>;

constexpr nn::resnet resnet_of_channels(int in, int out) {
    return {.in_channels = in, .out_channels = out, .height = 7, .width = 5, .groups = 2, .epsilon = 1e-6};
}
constexpr nn::resnet kept = resnet_of_channels(4, 4);
constexpr nn::resnet widened = resnet_of_channels(4, 6);
constexpr nn::resnet narrowed = resnet_of_channels(6, 4);
constexpr nn::norm_conv ending{.in_channels = 4, .out_channels = 3, .height = 7, .width = 5, .groups = 2};
constexpr nn::upsample doubling{.channels = 3, .height = 5, .width = 4};

template <int Rows>
void check_layers() {
    CAPTURE(Rows);
    CHECK(drawn_run<alone<strip_resnet{kept, Rows}>>(2) == drawn_run<alone<kept>>(2));
    CHECK(drawn_run<alone<strip_resnet{widened, Rows}>>(2) == drawn_run<alone<widened>>(2));
    CHECK(drawn_run<alone<strip_resnet{narrowed, Rows}>>(2) == drawn_run<alone<narrowed>>(2));
    CHECK(drawn_run<alone<strip_norm_conv{ending, Rows}>>(2) == drawn_run<alone<ending>>(2));
    CHECK(drawn_run<alone<strip_upsample{doubling, Rows}>>(2) == drawn_run<alone<doubling>>(2));
}

constexpr autoencoder_config tiny(int rows, int size = 12) {
    autoencoder_config c{};
    c.name = "tiny";
    c.sample_size = size;
    c.block_out_channels = {4, 6, 6};
    c.layers_per_block = 1;
    c.norm_num_groups = 2;
    c.strip_rows = rows;
    return c;
}

constexpr autoencoder_config crooked{
    .name = "crooked", .sample_size = 6, .block_out_channels = {4, 6}, .layers_per_block = 1, .norm_num_groups = 2};
static_assert(test::fits<autoencoder_encoder<kl_f8(512)>, autoencoder_decoder<kl_f8(512)>, autoencoder_encoder<crooked>,
                         autoencoder_decoder<crooked>>());

struct known_layer {
    std::string_view name;
    std::int64_t parameters;
    double flops;
};

} // namespace

TEST_CASE("parameters and FLOPs of the autoencoder of Stable Diffusion are the known ones") {
    // known costs of frozen networks: vae_kl_f8_encoder_512
    const std::vector<known_layer> known{
        {"encoder.conv_in", 3584, 1811939328.0},
        {"encoder.down_blocks.0.resnets.0", 295680, 154618822656.0},
        {"encoder.down_blocks.0.resnets.1", 295680, 154618822656.0},
        {"encoder.down_blocks.0.downsamplers.0", 147584, 19327352832.0},
        {"encoder.down_blocks.1.resnets.0", 919040, 120259084288.0},
        {"encoder.down_blocks.1.resnets.1", 1181184, 154618822656.0},
        {"encoder.down_blocks.1.downsamplers.0", 590080, 19327352832.0},
        {"encoder.down_blocks.2.resnets.0", 3673088, 120259084288.0},
        {"encoder.down_blocks.2.resnets.1", 4721664, 154618822656.0},
        {"encoder.down_blocks.2.downsamplers.0", 2359808, 19327352832.0},
        {"encoder.down_blocks.3.resnets.0", 4721664, 38654705664.0},
        {"encoder.down_blocks.3.resnets.1", 4721664, 38654705664.0},
        {"encoder.mid_block.resnets.0", 4721664, 38654705664.0},
        {"encoder.mid_block.attentions.0", 1051648, 42949672960.0},
        {"encoder.mid_block.resnets.1", 4721664, 38654705664.0},
        {"encoder.conv_out", 37896, 301989888.0},
        {"quant_conv", 72, 524288.0},
    };
    constexpr auto encoder = uncut_graph_of<autoencoder_encoder<kl_f8(512)>>();
    REQUIRE(encoder.layers.size() == known.size());
    for (std::size_t l = 0; l != known.size(); ++l) {
        CHECK(encoder.layers[l].name.view() == known[l].name);
        CHECK(encoder.layers[l].parameter_elements == known[l].parameters);
        CHECK(encoder.layers[l].forward_flops == known[l].flops);
    }
    CHECK(autoencoder_encoder<kl_f8(512)>::parameter_count() == 34'163'664);
    CHECK(autoencoder_decoder<kl_f8(512)>::parameter_count() == 83'653'863 - 34'163'664); // the published file has both
    CHECK(flops_of<autoencoder_encoder<kl_f8(256)>>() == 272722165760.0);
    CHECK(flops_of<autoencoder_encoder<kl_f8(768)>>() == 2609118314496.0);
    CHECK(flops_of<autoencoder_encoder<kl_f8(1024)>>() == 4878950727680.0);
}

TEST_CASE("a picture of 1024 pixels takes so many bytes") {
    // the encoder's first level: a 128-channel tensor, the middle of its resnet, and a strip of 64 rows
    constexpr std::int64_t picture = 128 * 1024 * 1024;
    using encoder = chain<autoencoder_encoder<kl_f8(1024)>, reference::backend<float>>;
    CHECK(encoder::working_elements() == 2 * picture + 66 * 1026 * 128);
    CHECK(encoder::bytes() == 1'245'132'864);
    // the decoder's last level starts with twice the channels, and cannot overwrite them
    using decoder = chain<autoencoder_decoder<kl_f8(1024)>, reference::backend<float>>;
    CHECK(decoder::working_elements() == 4 * picture + 66 * 1026 * 256);
    CHECK(decoder::bytes() == 2'414'851'420);
}

TEST_CASE("layers that go strip by strip give the bits of those that do not") {
    check_layers<1>();
    check_layers<2>();
    check_layers<3>();
    check_layers<7>();
    check_layers<64>();
}

TEST_CASE("autoencoders give the same bits whatever the rows of a strip") {
    const auto moments = drawn_run<autoencoder_encoder<tiny(64)>>(2);
    const auto picture = drawn_run<autoencoder_decoder<tiny(64)>>(2);
    CHECK(drawn_run<autoencoder_encoder<tiny(1)>>(2) == moments);
    CHECK(drawn_run<autoencoder_encoder<tiny(5)>>(2) == moments);
    CHECK(drawn_run<autoencoder_decoder<tiny(1)>>(2) == picture);
    CHECK(drawn_run<autoencoder_decoder<tiny(5)>>(2) == picture);
}

TEST_CASE("autoencoders give the same bits wherever their chains pause") {
    check_cuts<autoencoder_encoder<tiny(5)>>();
    check_cuts<autoencoder_decoder<tiny(5)>>();
}

TEST_CASE("autoencoders give the same bits where chains have some of their layers alone") {
    check_parts<autoencoder_encoder<tiny(5)>>();
    check_parts<autoencoder_decoder<tiny(5)>>();
}

TEST_CASE("the logarithm of a variance is held to what diffusers holds it to") {
    oracle on;
    const std::vector<double> moments{1.0, 2.0, 100.0, -100.0};
    const std::vector<double> noise{3.0, 3.0};
    std::vector<double> z(2);
    on.posterior(1, 2, 0.5, moments.data(), noise.data(), z.data());
    CHECK(z[0] == doctest::Approx(0.5 * (1.0 + 3.0 * std::exp(10.0))));
    CHECK(z[1] == doctest::Approx(0.5 * (2.0 + 3.0 * std::exp(-15.0))));
}

TEST_CASE("an autoencoder at another extent is the one whose type has it, and at a rectangle the same by any strips") {
    using larger = autoencoder_encoder<tiny(5, 20)>;
    CHECK(drawn_run<autoencoder_encoder<tiny(5)>>(2, {20, 20}) == drawn_run<larger>(2));
    CHECK(drawn_run<autoencoder_decoder<tiny(5)>>(2, {5, 5}) == drawn_run<autoencoder_decoder<tiny(5, 20)>>(2));
    using encoder = autoencoder_encoder<tiny(5)>;
    CHECK(chain<encoder, oracle>::bytes(resize<encoder>({20, 20})) == chain<larger, oracle>::bytes());
    for (const extent& pixels : {extent{8, 28}, extent{24, 4}}) {
        CAPTURE(pixels.height);
        const extent latents{pixels.height / 4, pixels.width / 4};
        CHECK(drawn_run<encoder>(2, pixels) == drawn_run<autoencoder_encoder<tiny(64)>>(2, pixels));
        CHECK(drawn_run<autoencoder_decoder<tiny(1)>>(2, latents) ==
              drawn_run<autoencoder_decoder<tiny(64)>>(2, latents));
    }
}
