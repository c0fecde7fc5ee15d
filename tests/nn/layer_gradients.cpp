#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <nn/layer_trial.hpp>
#include <pulse/nn/attention.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/norm.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/nn/resnet.hpp>
#include <pulse/nn/time_embedding.hpp>

using namespace pulse;
using pulse::test::guarded;
using pulse::test::layer_trial;

namespace {

template <nn::conv C>
using conv = nn::block<"conv", C>;
template <nn::resnet R>
using resnet = nn::block<"resnet", R>;
template <nn::group_norm N>
using group_norm = nn::block<"norm", N>;
template <nn::norm_conv N>
using norm_conv = nn::block<"out", N>;
template <nn::attention A>
using attention = nn::block<"attention", A>;
template <nn::time_embedding T>
using embedding = nn::conditioning_block<"time", T>;

constexpr nn::conv pointwise(int in, int skip, int out, int height, int width, int stride) {
    return {in, skip, out, height, width, 1, stride, 0, 0};
}

template <class... L>
void check_all() {
    std::uint64_t seed = 1;
    (layer_trial<L>{2, seed++}.check(), ...);
    (layer_trial<L>{1, seed++}.check(), ...);
}

/// Checks the passes of a conditioning module against finite differences; its timesteps have no gradient.
template <class C>
void check_conditioning(std::uint64_t seed) {
    constexpr int batch = 3;
    std::mt19937_64 random{seed};
    std::uniform_real_distribution<double> time{0.0, 30.0};
    guarded timesteps{batch};
    for (std::size_t b = 0; b != batch; ++b) { timesteps[b] = time(random); }
    guarded parameters{parameter_elements<C>()};
    guarded output_gradient{batch * C::output::elements};
    parameters.draw(random);
    output_gradient.draw(random);
    guarded output{batch * C::output::elements};
    guarded saved{batch * C::saved_elements};
    guarded statistics{batch * statistics_elements<C>()};
    guarded gradients{parameter_elements<C>(), 0.25};
    reference::backend<double> backend;

    into mode = into::add;
    const auto frame = [&](guarded& workspace) {
        layer_frame<double> f;
        f.batch = batch;
        f.gradients = mode;
        f.timesteps = timesteps.data();
        f.parameters = parameters.data();
        f.output = output.data();
        f.saved = saved.data();
        f.statistics = statistics.data();
        f.output_gradient = output_gradient.data();
        f.parameter_gradients = gradients.data();
        f.workspace = workspace.data();
        return f;
    };
    const auto loss = [&] {
        guarded workspace{batch * C::workspace_elements};
        C::forward(backend, frame(workspace));
        double sum = 0.0;
        for (std::size_t i = 0; i != output.size(); ++i) { sum += output[i] * output_gradient[i]; }
        return sum;
    };
    static_cast<void>(loss());
    CHECK(output.written());
    CHECK(saved.written());
    output = guarded{batch * C::output::elements};
    guarded workspace{batch * C::workspace_elements};
    C::backward_weight(backend, frame(workspace));
    for (const guarded* g : {&output, &saved, &workspace, &gradients}) { CHECK(g->intact()); }
    for (std::size_t i = 0; i != parameters.size(); ++i) {
        const double value = parameters[i];
        const double expected = test::slope(
            [&](double h) {
                parameters[i] = value + h;
                return loss();
            },
            1e-3);
        parameters[i] = value;
        CHECK(std::abs(gradients[i] - 0.25 - expected) <= 1e-8 * (1.0 + std::abs(expected)));
    }
    const auto summed = [&](into first, double start) {
        gradients = guarded{parameter_elements<C>(), start};
        for (int m = 0; m != 2; ++m) {
            mode = m == 0 ? first : into::add;
            static_cast<void>(loss());
            C::backward_weight(backend, frame(workspace));
        }
        return gradients;
    };
    static_assert(writes_gradients<C>);
    const guarded written = summed(into::write, std::numeric_limits<double>::quiet_NaN());
    CHECK(written == summed(into::add, 0.0));
}

/// y = a x, with one kind of fault.
enum class wrong { nothing, output, saved, scale, input, unasked, sums, overwritten, weights, keeps, behind, spoils };
template <wrong What, bool Writes = true>
struct scaling {
    static constexpr label name{"scaling"};
    using input = shape<3>;
    using output = shape<3>;
    static constexpr std::int64_t saved_elements = 3, deferred_elements = 3, workspace_elements = 0;
    static constexpr bool writes_gradients = Writes;

    static constexpr auto parameters() { return std::array{parameter{"scaling.weight", {1, 3}, 2}}; }
    static constexpr double forward_flops() { return 3.0; }

    template <backend B>
    static void forward(B& on, const backend_frame<B>& f) {
        on.copy(f.batch * 3, f.input, f.saved);
        if (What == wrong::saved) { f.saved[0] = std::numeric_limits<double>::quiet_NaN(); }
        for (int i = What == wrong::output ? 1 : 0; i != f.batch * 3; ++i) {
            f.output[i] = f.input[i] * f.parameters[i % 3];
        }
        if (What == wrong::behind) { f.workspace[0] = 1.0; }
    }
    template <backend B>
    static void backward_input(B&, const backend_frame<B>& f) {
        for (int i = 0; i != f.batch * 3; ++i) {
            f.deferred[i] = f.output_gradient[i] * f.saved[i] + (f.input_gradient == nullptr && What == wrong::unasked);
        }
        if (What == wrong::keeps) { f.saved[0] = 0.0; }
        if (f.input_gradient == nullptr) { return; }
        for (int i = 0; i != f.batch * 3; ++i) {
            f.input_gradient[i] = f.output_gradient[i] * f.parameters[What == wrong::input ? 0 : i % 3];
        }
    }
    template <backend B>
    static void backward_weight(B&, const backend_frame<B>& f) {
        const auto place = What == wrong::sums ? gradient_place<double>{f.parameter_gradients} : f.gradient();
        double* const sums = place.begun(What == wrong::overwritten ? 2 : 3);
        if (What == wrong::weights) { sums[0] += 1.0; }
        if (What == wrong::spoils) { f.input_gradient[0] = 0.0; }
        for (int i = 0; i != f.batch * 3; ++i) { sums[i % 3] += f.deferred[i] * (What == wrong::scale ? 2.0 : 1.0); }
    }
};
template <wrong What, bool Writes = true>
std::string first_fault() {
    const std::vector<std::string> faults = reference::layer_trial<scaling<What, Writes>>{}.check();
    return faults.empty() ? "" : faults.front();
}

} // namespace

TEST_CASE("a trial of a layer says what is wrong with its passes") {
    CHECK(first_fault<wrong::nothing>() == "");
    CHECK(first_fault<wrong::output>() == "the output is not completely written");
    CHECK(first_fault<wrong::saved>() == "saved is not completely written");
    CHECK(first_fault<wrong::behind>() == "forward writes past the end of its workspace");
    CHECK(first_fault<wrong::keeps>() == "a backward pass changes what forward saved");
    CHECK(first_fault<wrong::spoils>() == "backward_weight changes the gradient of the input");
    CHECK(first_fault<wrong::unasked>() ==
          "other gradients change if those of the input and the context are not requested");
    const std::string kept = "gradients written over old values differ from gradients added to 0";
    CHECK(first_fault<wrong::sums>() == kept);
    CHECK(first_fault<wrong::overwritten>() == kept);
    CHECK(first_fault<wrong::sums, false>() == "");
    const auto differs = [](const std::string& fault, const std::string& of) {
        return fault.starts_with("the gradient of the " + of + " differs from finite differences by ");
    };
    CHECK(differs(first_fault<wrong::input>(), "input"));
    CHECK(differs(first_fault<wrong::weights>(), "parameters"));
    CHECK(differs(first_fault<wrong::scale>(), "parameters"));
}

TEST_CASE("convolution of every kernel, stride and padding: gradients equal finite differences") {
    check_all<
        conv<nn::conv{.in_channels = 3, .out_channels = 2, .height = 5, .width = 4}>,
        conv<nn::conv{.in_channels = 2, .out_channels = 3, .height = 6, .width = 4, .stride = 2}>,
        conv<nn::conv{.in_channels = 2, .out_channels = 3, .height = 4, .width = 6, .stride = 2, .pad_before = 0}>,
        conv<pointwise(3, 0, 4, 3, 2, 1)>, conv<pointwise(3, 0, 2, 5, 4, 2)>>();
}

TEST_CASE("convolution of an input and a skip: gradients equal finite differences") {
    check_all<conv<nn::conv{.in_channels = 3, .skip_channels = 2, .out_channels = 4, .height = 3, .width = 4}>,
              conv<pointwise(1, 4, 2, 4, 3, 1)>>();
}

TEST_CASE("linear, SiLU and GroupNorm: gradients equal finite differences") {
    check_all<nn::block<"linear", nn::linear{.in_features = 5, .out_features = 3}>,
              nn::block<"silu", nn::silu{.channels = 3, .height = 2, .width = 4}>,
              nn::block<"silu", nn::silu{.channels = 7}>,
              group_norm<nn::group_norm{.channels = 6, .height = 3, .width = 2, .groups = 3}>,
              group_norm<nn::group_norm{
                  .channels = 6, .height = 3, .width = 2, .groups = 2, .epsilon = 1e-2, .silu = true}>>();
}

TEST_CASE("GroupNorm, SiLU and convolution: gradients equal finite differences") {
    // in and out channels, height, width, groups
    check_all<norm_conv<nn::norm_conv{4, 2, 4, 3, 2}>, norm_conv<nn::norm_conv{3, 5, 2, 4, 3}>>();
}

TEST_CASE("ResNet block without a skip: gradients equal finite differences") {
    // in, skip and out channels, height, width, groups, conditioning
    check_all<resnet<nn::resnet{4, 0, 4, 4, 3, 2, 3}>, resnet<nn::resnet{4, 0, 6, 3, 3, 2, 5}>,
              resnet<nn::resnet{3, 0, 3, 3, 4, 3}>>();
}

TEST_CASE("ResNet block with a skip, groups across its border: gradients equal finite differences") {
    check_all<resnet<nn::resnet{4, 2, 4, 3, 4, 2, 3}>, resnet<nn::resnet{2, 4, 6, 3, 3, 2, 2}>,
              resnet<nn::resnet{2, 2, 2, 4, 2, 1}>>();
}

TEST_CASE("attention block of one and several heads: gradients equal finite differences") {
    check_all<attention<nn::attention{.channels = 4, .height = 3, .width = 2, .groups = 2, .heads = 1}>,
              attention<nn::attention{.channels = 6, .height = 2, .width = 3, .groups = 2, .heads = 3}>,
              attention<nn::attention{.channels = 4, .height = 4, .width = 2, .groups = 4, .heads = 2}>>();
}

TEST_CASE("downsample of both paddings and upsample: gradients equal finite differences") {
    check_all<nn::block<"down", nn::downsample{.channels = 3, .height = 4, .width = 6}>,
              nn::block<"down", nn::downsample{.channels = 2, .height = 6, .width = 4, .padding = 0}>,
              nn::block<"up", nn::upsample{.channels = 2, .height = 3, .width = 2}>>();
}

TEST_CASE("time embedding: gradients equal finite differences") {
    check_conditioning<embedding<nn::time_embedding{.features = 6, .width = 5}>>(1);
    check_conditioning<
        embedding<nn::time_embedding{.features = 4, .width = 8, .flip_sin_to_cos = false, .freq_shift = 1}>>(2);
}
