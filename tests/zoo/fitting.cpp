#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <support/fits.hpp>
#include <pulse/core/label.hpp>
#include <pulse/model/rules.hpp>
#include <pulse/model/skip.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/value_graph.hpp>
#include <pulse/zoo/controlnet.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/hunyuan_dit.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>
#include <pulse/zoo/uvit.hpp>

// A backbone whose config has no flaw keeps all rules of a model: the compiler checks those of the zoo, and random ones
// are checked as values.

using namespace pulse;

static_assert(
    test::fits<sd15, sd21, sd_fmnist, sd_tiny, sd_long_tiny, sd_self_tiny, sd_pixels_tiny, sd_pixels_up_tiny>());
static_assert(test::fits<sdxl, sdxl_tiny, ddpm_cifar10, ddpm_fmnist, ddpm_fmnist_small, ddpm_fmnist_half,
                         ddpm_fmnist_up, ddpm_tiny>());
static_assert(
    test::fits<uvit_s2, uvit_m4, uvit_l2, uvit_h2, uvit_tiny, hunyuan_dit_v11, hunyuan_dit_v12, hunyuan_tiny>());
static_assert(test::fits<controlnet_sd15, controlnet_fmnist, controlnet_tiny>());

namespace {

struct crooked_uvit : uvit<uvit_config{.name = "crooked_uvit",
                                       .img_size = 6,
                                       .patch_size = 3,
                                       .in_chans = 1,
                                       .embed_dim = 6,
                                       .depth = 2,
                                       .num_heads = 3,
                                       .num_classes = 5,
                                       .conv = false}> {};
struct crooked_dit : hunyuan_dit<hunyuan_dit_config{.name = "crooked_dit",
                                                    .sample_size = 6,
                                                    .patch_size = 3,
                                                    .in_channels = 1,
                                                    .hidden_size = 12,
                                                    .num_layers = 4,
                                                    .num_attention_heads = 3,
                                                    .mlp_hidden = 7,
                                                    .cross_attention_dim = 5,
                                                    .cross_attention_dim_t5 = 8,
                                                    .text_len = 1,
                                                    .text_len_t5 = 2,
                                                    .use_style_cond_and_image_meta_size = true}> {};
static_assert(test::fits<crooked_uvit, crooked_dit>());

constexpr unet_config crooked{.name = "crooked",
                              .sample_size = 2,
                              .block_out_channels = {4, 6},
                              .layers_per_block = 1,
                              .mid_block_resnets = 0,
                              .mid_block_attention = false,
                              .norm_num_groups = 2};
consteval unet_config one_level(unet_config c) {
    c.sample_size = 1;
    c.block_out_channels = {4};
    c.mid_block_resnets = 1;
    return c;
}
consteval unet_config attending(unet_config c) {
    c.attention = {true, false};
    c.attention_head_dim = 0;
    c.mid_block_resnets = 2;
    c.mid_block_attention = true;
    return c;
}
struct control_down : controlnet<crooked> {};
struct control_level : controlnet<one_level(crooked)> {};
struct control_attending : controlnet<attending(crooked)> {};
static_assert(test::fits<control_down, control_level, control_attending>());

[[nodiscard]] shape_facts facts_of(const nn::sample_dims& e) {
    if (e == nn::sample_dims{}) { return {}; }
    const int rank = e[1] == 0 ? 1 : e[2] == 0 ? 2 : 3;
    shape_facts facts{.rank = rank};
    for (std::size_t d = 0; d != static_cast<std::size_t>(rank); ++d) { facts.dims[d] = e[d]; }
    return facts;
}
[[nodiscard]] shape_facts facts_of(int features) { return facts_of(nn::sample_dims{features, 0, 0}); }

/// A model whose layers are values.
class drawn_model {
public:
    template <class Math>
    void add(const label& name, const Math& math) {
        REQUIRE(math.defect() == nn::flaw::none);
        const nn::layer_sizes sizes = nn::layout_of(math).sizes;
        layers_.push_back({.name = name,
                           .input = facts_of(math.input()),
                           .output = facts_of(math.output()),
                           .skip_input = facts_of(sizes.skip),
                           .conditioning = sizes.conditioning == 0 ? shape_facts{} : facts_of(sizes.conditioning),
                           .context = facts_of(sizes.context),
                           .output_elements = nn::elements(math.output())});
    }
    void connect(int from, int to) {
        skips_.push_back({layers_[static_cast<std::size_t>(from)].name, layers_[static_cast<std::size_t>(to)].name});
    }
    template <class Math>
    void condition(const Math& math) {
        REQUIRE(math.defect() == nn::flaw::none);
        const nn::layer_sizes sizes = nn::layout_of(math).sizes;
        embedding_ = facts_of(math.output());
        context_ = facts_of(sizes.context);
        trained_ = sizes.trains_context;
    }
    void check() const {
        const model_finding found = inspect_model(layers_, skips_, embedding_, context_, trained_);
        CAPTURE(found.subject.str());
        CAPTURE(found.object.str());
        CHECK(static_cast<int>(found.broken) == static_cast<int>(model_rule::kept));
    }

private:
    std::vector<layer_facts> layers_{};
    std::vector<skip_ends> skips_{};
    shape_facts embedding_{};
    shape_facts context_{};
    bool trained_{};
};

class draw {
public:
    explicit draw(unsigned seed) : random_{seed} {}

    [[nodiscard]] int from(int low, int high) { return std::uniform_int_distribution{low, high}(random_); }
    [[nodiscard]] bool coin() { return from(0, 1) == 1; }
    template <std::size_t N>
    [[nodiscard]] int of(const int (&all)[N]) {
        return all[static_cast<std::size_t>(from(0, static_cast<int>(N) - 1))];
    }

private:
    std::mt19937 random_;
};

[[nodiscard]] one_or_each<int> drawn_list(draw& d, int positions, int low, int high) {
    one_or_each<int> list = d.from(low, high);
    if (d.coin()) {
        list.count = positions;
        for (int j = 0; j != positions; ++j) { list.values[static_cast<std::size_t>(j)] = d.from(low, high); }
    }
    return list;
}

/// A random config; about one in ten has no flaw.
[[nodiscard]] unet_config drawn_unet(draw& d) {
    unet_config c{.name = "drawn"};
    const int levels = d.from(1, 4);
    const bool text = d.coin();
    c.sample_size = d.from(1, 3) << d.from(levels - 1, levels);
    c.in_channels = d.from(1, 4);
    c.out_channels = d.from(1, 4);
    c.norm_num_groups = d.of({1, 2, 4});
    for (int i = 0; i != levels; ++i) { c.block_out_channels[static_cast<std::size_t>(i)] = 4 * d.from(1, 4); }
    c.layers_per_block = drawn_list(d, levels, 1, 3);
    c.mid_block_resnets = d.of({0, 1, 2, 2});
    c.mid_block_attention = d.coin();
    c.attention_head_dim = d.of({0, 1, 2, 4, 8});
    c.downsample_padding = d.from(0, 1);
    c.freq_shift = d.from(0, 1);
    c.transformer_layers_per_block.count = text ? levels : 0;
    const bool reversed = text && d.from(0, 3) == 0;
    c.reverse_transformer_layers_per_block.count = reversed ? levels : 0;
    for (int i = 0; i != levels; ++i) {
        const auto level = static_cast<std::size_t>(i);
        const bool here = text && d.coin();
        c.attention[level] = d.from(0, here ? 8 : 3) == 0;
        if (!here) { continue; }
        c.transformer_layers_per_block.values[level] = drawn_list(d, c.layers(i) + (reversed ? 0 : d.from(0, 1)), 1, 2);
        if (reversed) {
            c.reverse_transformer_layers_per_block.values[static_cast<std::size_t>(levels - 1 - i)] =
                drawn_list(d, c.layers(i) + 1, 1, 2);
        }
    }
    c.mid_block_transformer_layers = text || d.from(0, 8) == 0 ? d.from(0, 2) : 0;
    c.cross_attention_dim = text ? d.from(1, 9) : d.from(0, 8) / 8;
    c.encoder_hid_dim = text && d.coin() ? d.from(1, 9) : d.from(0, 8) / 8;
    c.context_tokens = d.from(1, 5);
    c.transformer_heads = d.coin() ? drawn_list(d, levels, 1, 2) : one_or_each<int>{0};
    c.transformer_head_dim = d.of({1, 2, 4});
    c.use_linear_projection = d.coin();
    c.addition_time_embed_dim = d.of({2, 4, 7});
    c.projection_class_embeddings_input_dim = text && d.coin() ? d.from(20, 40) : d.from(0, 8) / 8;
    return c;
}

void check_unet(const unet_config& c) {
    const unet_values all{c};
    drawn_model made;
    for (const unet_layer& l : all.layers) {
        use_math(c, l, [&](const auto& math) { made.add(l.name, math); });
    }
    for (const auto& [from, to] : all.skips) { made.connect(from, to); }
    if (c.reads_text()) {
        made.condition(text_conditioning_of(c));
    } else {
        made.condition(time_embedding_of(c));
    }
    made.check();
}

} // namespace

TEST_CASE("UNets of configs without a flaw keep every rule of a model") {
    draw d{1};
    int sound = 0;
    int reading = 0;
    int reversed = 0;
    for (int i = 0; i != 40'000; ++i) {
        const unet_config c = drawn_unet(d);
        if (flaw_of(c) != unet_flaw::none) { continue; }
        ++sound;
        if (c.reads_text()) { ++reading; }
        if (c.reverse_transformer_layers_per_block.is_list()) { ++reversed; }
        check_unet(c);
    }
    CHECK(sound - reading > 1'000);
    CHECK(reading > 1'000);
    CHECK(reversed > 100);
}
