// What the numbers of a layer need.
//
// error-1: pulse: every size of a layer is positive
// error-2: pulse: a convolution's window fits into its padded image
// error-3: pulse: the groups of a GroupNorm divide its channels
// error-4: pulse: the heads of an attention divide its channels
// error-5: pulse: a sinusoid has an even number of features, more than twice its shift

#include <pulse/nn/attention.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/nn/resnet.hpp>
#include <pulse/nn/time_embedding.hpp>

namespace nn = pulse::nn;

constexpr int wrong(int number, int good, int bad) { return CASE == number ? bad : good; }

using linear = nn::block<"linear", nn::linear{.in_features = wrong(1, 4, 0), .out_features = 3}>;
using conv =
    nn::block<"conv", nn::conv{.in_channels = 2, .out_channels = 3, .height = wrong(2, 4, 2), .width = 4, .kernel = 5}>;
using resnet = nn::block<
    "resnet",
    nn::resnet{
        .in_channels = 4, .skip_channels = wrong(3, 2, 3), .out_channels = 6, .height = 4, .width = 4, .groups = 2}>;
using attention =
    nn::block<"attention", nn::attention{.channels = 6, .height = 4, .width = 4, .groups = 2, .heads = wrong(4, 3, 4)}>;
using time = nn::conditioning_block<"time", nn::time_embedding{.features = wrong(5, 6, 7), .width = 8}>;

static_assert(linear::input::elements + conv::input::elements + resnet::input::elements + attention::input::elements +
                  time::output::elements ==
              4 + 32 + 64 + 96 + 8);
