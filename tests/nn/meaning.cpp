#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <nn/layer_trial.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/resnet.hpp>

using namespace pulse;
using pulse::test::layer_trial;

namespace {

/// Greatest difference, relative to the greatest value.
template <class Tensor>
double distance(const Tensor& a, const Tensor& b) {
    REQUIRE(a.size() == b.size());
    double worst = 0.0;
    double greatest = 1e-300;
    for (std::size_t i = 0; i != a.size(); ++i) {
        worst = std::fmax(worst, std::abs(a[i] - b[i]));
        greatest = std::fmax(greatest, std::abs(a[i]));
    }
    return worst / greatest;
}

/// Rounding of sums of at most 128 products, which the compiler may contract (FMA) differently in the two loops.
constexpr double rounding = 128 * 2.3e-16;

/// A layer with a skip equals the same layer with the concatenation as its only input.
template <class Joining, class Whole>
void check_concatenation() {
    layer_trial<Joining> joining{2, 4};
    layer_trial<Whole> whole{2, 5};
    whole.parameters = joining.parameters;
    whole.output_gradient = joining.output_gradient;
    if constexpr (reads_conditioning<Joining>) { whole.conditioning = joining.conditioning; }
    const auto a = static_cast<std::size_t>(Joining::input::dims[0]);
    const auto b = static_cast<std::size_t>(Joining::skip_input::dims[0]);
    const std::size_t pixels = joining.input.size() / a;
    for (std::size_t p = 0; p != pixels; ++p) {
        for (std::size_t c = 0; c != a; ++c) { whole.input[p * (a + b) + c] = joining.input[p * a + c]; }
        for (std::size_t c = 0; c != b; ++c) { whole.input[p * (a + b) + a + c] = joining.skip[p * b + c]; }
    }
    joining.forward();
    whole.forward();
    CHECK(distance(joining.output, whole.output) <= rounding);
    for (auto pass : {0, 1}) {
        pass == 0 ? joining.backward_input() : joining.backward_weight();
        pass == 0 ? whole.backward_input() : whole.backward_weight();
    }
    CHECK(distance(joining.parameter_gradients, whole.parameter_gradients) <= rounding);
    CHECK(distance(joining.conditioning_gradient, whole.conditioning_gradient) <= rounding);
    // The residual and the norm are summed in different orders.
    double worst = 0.0;
    for (std::size_t p = 0; p != pixels; ++p) {
        for (std::size_t c = 0; c != a + b; ++c) {
            const double part = c < a ? joining.input_gradient[p * a + c] : joining.skip_gradient[p * b + c - a];
            const double difference = std::abs(part - whole.input_gradient[p * (a + b) + c]);
            worst = difference <= worst ? worst : difference;
        }
    }
    CHECK(worst <= 1e-14);
}

/// The layer with a single tap of its convolution set to 1, per channel.
template <class L>
layer_trial<L> with_single_tap(int tap) {
    layer_trial<L> trial{1, 6};
    const int channels = L::math.channels;
    std::size_t at = 0;
    for (int o = 0; o != channels; ++o) {
        for (int i = 0; i != channels; ++i) {
            for (int t = 0; t != 9; ++t) { trial.parameters[at++] = o == i && t == tap ? 1.0 : 0.0; }
        }
    }
    while (at != trial.parameters.size()) { trial.parameters[at++] = 0.0; }
    trial.forward();
    return trial;
}

template <nn::downsample D>
void check_downsample() {
    for (int tap = 0; tap != 9; ++tap) {
        const auto trial = with_single_tap<nn::block<"down", D>>(tap);
        for (int y = 0; y != D.height / 2; ++y) {
            for (int x = 0; x != D.width / 2; ++x) {
                const int from_y = 2 * y + tap / 3 - D.padding;
                const int from_x = 2 * x + tap % 3 - D.padding;
                const bool inside = from_y >= 0 && from_y < D.height && from_x >= 0 && from_x < D.width;
                for (int c = 0; c != D.channels; ++c) {
                    const auto from = static_cast<std::size_t>((from_y * D.width + from_x) * D.channels + c);
                    const auto to = static_cast<std::size_t>((y * (D.width / 2) + x) * D.channels + c);
                    CHECK(trial.output[to] == (inside ? trial.input[from] : 0.0));
                }
            }
        }
    }
}

} // namespace

TEST_CASE("a skip input is a concatenation that is never made") {
    check_concatenation<nn::block<"a", nn::conv{3, 2, 4, 5, 4}>, nn::block<"b", nn::conv{5, 0, 4, 5, 4}>>();
    check_concatenation<nn::block<"a", nn::resnet{4, 2, 4, 3, 4, 2, 3}>,
                        nn::block<"b", nn::resnet{6, 0, 4, 3, 4, 2, 3}>>();
    check_concatenation<nn::block<"a", nn::resnet{1, 3, 2, 4, 4, 2, 0}>,
                        nn::block<"b", nn::resnet{4, 0, 2, 4, 4, 2, 0}>>();
}

TEST_CASE("downsampling takes the pixels that diffusers takes, for both paddings") {
    check_downsample<nn::downsample{2, 4, 6, 1}>();
    check_downsample<nn::downsample{2, 6, 4, 0}>();
}

TEST_CASE("upsampling repeats pixels") {
    constexpr nn::upsample up{2, 3, 2};
    const auto trial = with_single_tap<nn::block<"up", up>>(4);
    for (int y = 0; y != 2 * up.height; ++y) {
        for (int x = 0; x != 2 * up.width; ++x) {
            for (int c = 0; c != up.channels; ++c) {
                const auto from = static_cast<std::size_t>((y / 2 * up.width + x / 2) * up.channels + c);
                const auto to = static_cast<std::size_t>((y * 2 * up.width + x) * up.channels + c);
                CHECK(trial.output[to] == trial.input[from]);
            }
        }
    }
}

TEST_CASE("sinusoids are those of diffusers' Timesteps") {
    reference::backend<double> backend;
    const std::vector<double> timesteps{0.0, 3.0};
    std::vector<double> e(8);
    backend.sinusoid(2, 4, false, 1.0, timesteps.data(), e.data());
    // Two frequencies: 1 and, with shift 1, 1/10000.
    const std::vector<double> sines_first{0.0,           0.0,           1.0, 1.0, std::sin(3.0), std::sin(3e-4),
                                          std::cos(3.0), std::cos(3e-4)};
    for (std::size_t i = 0; i != 8; ++i) { CHECK(std::abs(e[i] - sines_first[i]) <= 1e-15); }
    backend.sinusoid(2, 4, true, 0.0, timesteps.data(), e.data());
    const std::vector<double> cosines_first{1.0,           1.0,           0.0, 0.0, std::cos(3.0), std::cos(0.03),
                                            std::sin(3.0), std::sin(0.03)};
    for (std::size_t i = 0; i != 8; ++i) { CHECK(std::abs(e[i] - cosines_first[i]) <= 1e-15); }
}
