#include <cstdint>

#include <doctest/doctest.h>

#include <nn/layer_trial.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/vit.hpp>
#include <pulse/nn/vit_block.hpp>

using namespace pulse;
using pulse::test::layer_trial;

namespace {

template <nn::vit_embed E>
using embed_layer = nn::described_block<"embed", E>;
template <nn::vit_block V>
using vit_layer = nn::described_block<"block", V>;
template <nn::vit_head H>
using head_layer = nn::described_block<"final", H>;

template <class... L>
void check_transformers() {
    std::uint64_t seed = 1;
    (layer_trial<L>{2, seed++}.check(), ...);
    (layer_trial<L>{1, seed++}.check(), ...);
}

} // namespace

TEST_CASE("beginning of a U-ViT: gradients equal finite differences") {
    // channels, size, patch, width, classes
    check_transformers<embed_layer<nn::vit_embed{3, 4, 2, 6}>, embed_layer<nn::vit_embed{1, 6, 3, 4}>>();
}

TEST_CASE("block of a U-ViT, with and without a skip: gradients equal finite differences") {
    // tokens, width, heads, skip
    check_transformers<vit_layer<nn::vit_block{5, 6, 2, false}>, vit_layer<nn::vit_block{4, 6, 3, true}>>();
}

TEST_CASE("end of a U-ViT, with and without a convolution: gradients equal finite differences") {
    check_transformers<head_layer<nn::vit_head{nn::vit_embed{2, 4, 2, 6}, true}>,
                       head_layer<nn::vit_head{nn::vit_embed{3, 4, 2, 4}, false}>>();
}
