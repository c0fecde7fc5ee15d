// What the numbers of a layer need, and the mathematics that has them.
//
// error-1: pulse: every size of a layer must be positive
// error-2: pulse: a convolution's window must fit into its padded image
// error-3: pulse: the groups of a GroupNorm must divide its channels
// error-4: pulse: the heads of an attention must divide its channels
// error-5: pulse: a sinusoid must have an even number of features, more than twice its shift
// error-6: pulse: the mathematics of a block needs 'constexpr pulse::nn::sample_dims output() const'
// error-7: pulse: the mathematics of a block needs 'constexpr pulse::nn::sample_dims input() const'
// error-8: pulse: the mathematics of a block needs 'constexpr pulse::nn::flaw defect() const'
// error-9: pulse: the mathematics of a block needs 'constexpr pieces describe(pulse::nn::description&) const'
// error-10: pulse: the mathematics of a block (Part) needs 'void forward(B&, const pulse::backend_frame<B>&,
// error-11: pulse: the mathematics of a block (Part) needs 'void backward_input(B&, const pulse::backend_frame<B>&,
// error-12: pulse: the mathematics of a block (Part) needs 'void backward_weight(B&, const pulse::backend_frame<B>&,

#include <pulse/model/model.hpp>
#include <pulse/nn/attention.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/nn/resnet.hpp>
#include <pulse/nn/time_embedding.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/layer_table.hpp>

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

struct mine {
#if CASE != 6
    constexpr nn::sample_dims output() const { return {4, 0, 0}; }
#endif
#if CASE != 7
    constexpr nn::sample_dims input() const { return {4, 0, 0}; }
#endif
#if CASE != 8
    constexpr nn::flaw defect() const { return nn::flaw::none; }
#endif
    struct pieces {};
#if CASE == 9 // of no description
    constexpr pieces describe() const { return {}; }
#else
    constexpr pieces describe(nn::description&) const { return {}; }
#endif
#if CASE != 10
    template <pulse::backend B>
    void forward(B&, const pulse::backend_frame<B>&, const pieces&) const {}
#endif
#if CASE == 11 // of no pieces
    template <pulse::backend B>
    void backward_input(B&, const pulse::backend_frame<B>&) const {}
#else
    template <pulse::backend B>
    void backward_input(B&, const pulse::backend_frame<B>&, const pieces&) const {}
#endif
#if CASE == 12 // changes the mathematics
    template <pulse::backend B>
    void backward_weight(B&, const pulse::backend_frame<B>&, const pieces&) {}
#else
    template <pulse::backend B>
    void backward_weight(B&, const pulse::backend_frame<B>&, const pieces&) const {}
#endif
};
struct own : pulse::model<"own", pulse::layers<nn::block<"mine", mine{}>>> {};
static_assert(pulse::layer_table<own, pulse::reference::backend<float>>().size() == 1);
