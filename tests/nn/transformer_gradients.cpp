#include <cstdint>

#include <doctest/doctest.h>

#include <nn/layer_trial.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/dit.hpp>
#include <pulse/nn/dit_block.hpp>
#include <pulse/nn/spatial_transformer.hpp>
#include <pulse/nn/text_block.hpp>
#include <pulse/nn/vit.hpp>
#include <pulse/nn/vit_block.hpp>

using namespace pulse;
using pulse::test::layer_trial;

namespace {

template <nn::vit_embed E>
using embed_layer = nn::block<"embed", E>;
template <nn::vit_block V>
using vit_layer = nn::block<"block", V>;
template <nn::vit_head H>
using head_layer = nn::block<"final", H>;

/// channels, height, width, heads, text tokens and features, groups
constexpr nn::text_attention small_text{4, 2, 3, 2, 3, 5, 2};

template <class L>
void check_transformer(int batch, std::uint64_t seed, double step) {
    layer_trial<L> trial{batch, seed};
    trial.step = step;
    trial.check();
}
template <class... L>
void check_transformers(double step = 1e-3) {
    std::uint64_t seed = 1;
    (check_transformer<L>(2, seed++, step), ...);
    (check_transformer<L>(1, seed++, step), ...);
}

} // namespace

TEST_CASE("beginning of a U-ViT: gradients equal finite differences") {
    // channels, rows and columns of patches, patch, width, rows and columns of learned positions, classes
    check_transformers<embed_layer<nn::vit_embed{3, 2, 2, 2, 6, 2, 0}>, embed_layer<nn::vit_embed{1, 2, 2, 3, 4, 2, 0}>,
                       embed_layer<nn::vit_embed{1, 2, 2, 2, 4, 2, 3}>, embed_layer<nn::vit_embed{1, 3, 4, 1, 4, 2, 0}>,
                       embed_layer<nn::vit_embed{2, 1, 3, 2, 2, 4, 2}>>();
}

TEST_CASE("block of a U-ViT, with and without a skip: gradients equal finite differences") {
    // tokens before the patch tokens, rows and columns of patches, width, heads, skip
    check_transformers<vit_layer<nn::vit_block{1, 2, 2, 6, 2, false}>, vit_layer<nn::vit_block{2, 1, 2, 6, 3, true}>>();
}

TEST_CASE("end of a U-ViT, with and without a convolution: gradients equal finite differences") {
    check_transformers<head_layer<nn::vit_head{nn::vit_embed{2, 2, 2, 2, 6, 2, 0}, true}>,
                       head_layer<nn::vit_head{nn::vit_embed{3, 2, 1, 2, 4, 2, 0}, false}>>();
}

TEST_CASE("transformer with a text: gradients equal finite differences") {
    check_transformers<nn::block<"t", nn::spatial_transformer{small_text, 1, false}>,
                       nn::block<"t", nn::spatial_transformer{{4, 2, 2, 1, 2, 3, 1}, 2, true}>>(2.5e-4);
}

TEST_CASE("beginning, blocks and end of a Hunyuan-DiT: gradients equal finite differences") {
    // rows, columns, width, heads, hidden, text tokens and features, span of the positions, skip
    check_transformers<nn::block<"pos_embed", nn::patch_embed{2, 6, 9, 3, 4}>,
                       nn::block<"b", nn::dit_block{2, 3, 8, 2, 10, 3, 5, 4.0, false}>,
                       nn::block<"b", nn::dit_block{3, 1, 8, 1, 5, 2, 3, 7.0, true}>,
                       nn::block<"proj_out", nn::dit_head{{2, 4, 6, 2, 6}, 3}>>(2.5e-4);
}
