#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <support/convolution_recorder.hpp>
#include <support/skip.hpp>

#include <pulse/cuda/cudnn/convolution_request.cuh>
#include <pulse/cuda/cudnn/engines.cuh>
#include <pulse/cuda/cudnn/plan.cuh>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>
#include <pulse/zoo/uvit.hpp>

#include "devices.hpp"
#include "driver.hpp"

using namespace pulse;
using namespace pulse::cuda::cudnn;
using cudnn_tests::has_driver;

namespace {

struct precision_case {
    const char* name;
    cudnnDataType_t type;
    bool tensor_float;
};
constexpr std::array precisions{
    precision_case{"bf16", CUDNN_DATA_BFLOAT16, false}, precision_case{"fp16", CUDNN_DATA_HALF, false},
    precision_case{"tf32", CUDNN_DATA_FLOAT, true}, precision_case{"fp32", CUDNN_DATA_FLOAT, false}};

/// Every distinct convolution of the zoo's backbones that is not a matrix product.
std::vector<test::recorded_convolution> zoo_convolutions() {
    test::convolution_recorder recorder;
    test::record_unet<sd15>(recorder);
    test::record_unet<sd21>(recorder);
    test::record_unet<sdxl>(recorder);
    test::record_unet<ddpm_cifar10>(recorder);
    test::record_unet<ddpm_fmnist>(recorder);
    test::record_uvit<uvit_s2>(recorder);
    test::record_uvit<uvit_m4>(recorder);
    test::record_uvit<uvit_l2>(recorder);
    test::record_uvit<uvit_h2>(recorder);
    std::erase_if(recorder.seen, [](const auto& one) { return is_product(one.shape); });
    return recorder.seen;
}

/// Engines of the first form that has any.
std::size_t engine_count(const convolution_request& request, const target& device, const engine_rules& rules) {
    for (const convolution_form form : forms_for(request)) {
        const auto found = engines_for(make_graph(graph_of_request(request, form), nullptr), device, rules);
        if (!found.empty()) { return found.size(); }
    }
    return 0;
}

std::string text_of(const test::recorded_convolution& c) {
    const conv2d_shape& s = c.shape;
    constexpr std::array passes{"forward", "input gradient", "weight gradient"};
    return std::string{passes[static_cast<std::size_t>(c.kind)]} + (c.adds ? ", adds" : "") +
           (c.has_bias ? ", bias" : "") + ": " + std::to_string(s.in_channels) + " to " +
           std::to_string(s.out_channels) + " channels of " + std::to_string(s.in_height) + "x" +
           std::to_string(s.in_width) + ", window " + std::to_string(s.kernel) + ", stride " +
           std::to_string(s.stride) + ", padding " + std::to_string(s.pad_before) + " and " +
           std::to_string(s.pad_after);
}

convolution_request request_of(const test::recorded_convolution& c, int batch, cudnnDataType_t type) {
    return {c.shape,
            batch,
            static_cast<convolution_pass>(c.kind),
            type,
            c.adds && c.kind != test::recorded_convolution::pass::backward_weight,
            c.has_bias};
}

} // namespace

TEST_CASE("every convolution of the zoo has an engine on every device that pulse is compiled for") {
    if (!has_driver()) { return test::skip("neither libcuda.so.1 nor its stub is there"); }
    std::vector<test::recorded_convolution> all = zoo_convolutions();
    REQUIRE(all.size() > 100);
    const std::size_t distinct = all.size();
    const bool whole = std::getenv("PULSE_TEST_ALL_CONVOLUTIONS") != nullptr;
    std::mt19937 engine{std::random_device{}()};
    std::size_t asked = 0;
    for (const cudnn_tests::device_facts& facts : {cudnn_tests::a100, cudnn_tests::h200, cudnn_tests::b200}) {
        const target device = target::described(cudnn_tests::properties_json(facts));
        for (const precision_case& precision : precisions) {
            std::shuffle(all.begin(), all.end(), engine);
            std::size_t least = 1000;
            std::size_t most = 0;
            const std::size_t taken = whole ? all.size() : 12;
            for (std::size_t i = 0; i != taken; ++i) {
                const int batch = whole ? 4 : 1 << (i % 5);
                const std::size_t found =
                    engine_count(request_of(all[i], batch, precision.type), device,
                                 {.tensor_float = precision.tensor_float || precision.type != CUDNN_DATA_FLOAT,
                                  .allow_run_time_compiled = true});
                CHECK_MESSAGE(found != 0,
                              facts.name << ", " << precision.name << ", batch " << batch << ", " << text_of(all[i]));
                least = std::min(least, found);
                most = std::max(most, found);
                ++asked;
            }
            std::printf("sm_%d %s: %zu of %zu convolutions, %zu to %zu engines each\n", facts.sm, precision.name, taken,
                        distinct, least, most);
        }
    }
    std::printf("%zu graphs\n", asked);
}

TEST_CASE("a plan that was written as JSON is read back as the same plan") {
    if (!has_driver()) { return test::skip("neither libcuda.so.1 nor its stub is there"); }
    const target device = target::described(cudnn_tests::properties_json(cudnn_tests::h200));
    const convolution_graph graph{{64, 64, 16, 16},    2, convolution_pass::forward, convolution_form::bias,
                                  CUDNN_DATA_BFLOAT16, 16};
    const auto engines =
        engines_for(make_graph(graph, nullptr), device, {.tensor_float = true, .allow_run_time_compiled = false});
    REQUIRE(!engines.empty());
    const plan made{device, engines.front()};
    const plan read{device, made.json()};
    CHECK(read.json() == made.json());
    CHECK(read.workspace_bytes() == made.workspace_bytes());
    CHECK_THROWS_AS((plan{device, made.json().substr(0, made.json().size() / 2)}), cudnn_error);
}

TEST_CASE("an error names the call and what cuDNN says about it") {
    try {
        (void)target::described("{}");
        FAIL("device properties without a field were taken");
    } catch (const cudnn_error& e) {
        const std::string text = e.what();
        CHECK(text.find("device properties") != std::string::npos);
        CHECK(text.find("BAD_PARAM") != std::string::npos);
    }
    tensor wrong = image(1, CUDNN_DATA_HALF, 1, 8, 4, 4);
    wrong.strides.pop_back();
    CHECK_THROWS_AS((void)make(wrong), cudnn_error);
}

TEST_CASE("graphs of different numbers have different texts") {
    const convolution_graph one{{64, 64, 16, 16},    2, convolution_pass::forward, convolution_form::bias,
                                CUDNN_DATA_BFLOAT16, 16};
    const std::string text = make_graph(one, nullptr).text();
    CHECK(text == make_graph(one, nullptr).text());
    const auto differs = [&](auto change) {
        convolution_graph other = one;
        change(other);
        CHECK(make_graph(other, nullptr).text() != text);
    };
    differs([](auto& g) { g.batch = 3; });
    differs([](auto& g) { g.type = CUDNN_DATA_HALF; });
    differs([](auto& g) { g.alignment = 8; });
    differs([](auto& g) { g.form = convolution_form::plain; });
    differs([](auto& g) { g.pass = convolution_pass::backward_input, g.form = convolution_form::plain; });
    differs([](auto& g) { g.shape.pad_before = 0, g.shape.pad_after = 2; });
}
