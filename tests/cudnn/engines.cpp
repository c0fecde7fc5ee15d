#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <cuda/drawn_shapes.hpp>
#include <nn/crooked_unet.hpp>
#include <support/convolution_recorder.hpp>
#include <support/skip.hpp>

#include <pulse/cuda/cudnn/convolution_request.cuh>
#include <pulse/cuda/cudnn/engines.cuh>
#include <pulse/cuda/cudnn/ready_engine.cuh>
#include <pulse/cuda/cudnn/run_time_compiler.cuh>
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
    std::erase_if(recorder.seen, [](const auto& one) { return one.shape.is_product(); });
    return recorder.seen;
}

struct supply {
    std::size_t engines{};     ///< of the first form that has any
    std::size_t precompiled{}; ///< of the first form that has any without NVRTC
};
supply supply_of(const convolution_request& request, const target& device, const engine_rules& rules) {
    supply found;
    for (const convolution_form form : forms_for(request)) {
        const auto all = engines_for(make_graph(graph_of_request(request, form), nullptr), device, rules);
        if (found.engines == 0) { found.engines = all.size(); }
        for (const engine_config& one : all) { found.precompiled += one.run_time_compiled ? 0 : 1; }
        if (found.precompiled != 0) { break; }
    }
    return found;
}
engine_rules rules_of(const precision_case& precision) {
    return {.tensor_float = precision.tensor_float || precision.type != CUDNN_DATA_FLOAT,
            .allow_run_time_compiled = true};
}

std::string text_of(const test::recorded_convolution& c) {
    const conv2d_shape& s = c.shape;
    constexpr std::array passes{"forward", "input gradient", "weight gradient"};
    return std::string{passes[static_cast<std::size_t>(c.kind)]} + (c.adds ? ", adds" : "") +
           (c.has_bias ? ", bias" : "") + (c.has_vectors ? ", vectors" : "") + ": " + std::to_string(s.in_channels) +
           " to " + std::to_string(s.out_channels) + " channels of " + std::to_string(s.in_height) + "x" +
           std::to_string(s.in_width) + ", window " + std::to_string(s.kernel) + ", stride " +
           std::to_string(s.stride) + ", padding " + std::to_string(s.pad_before) + " and " +
           std::to_string(s.pad_after);
}

/// Only float weight gradients can be added in place.
convolution_request request_of(const test::recorded_convolution& c, int batch, cudnnDataType_t type) {
    using pass = test::recorded_convolution::pass;
    return {c.kind == pass::forward ? c.shape : evenly_padded(c.shape),
            batch,
            static_cast<convolution_pass>(c.kind),
            type,
            c.adds && (c.kind != pass::backward_weight || type == CUDNN_DATA_FLOAT),
            c.has_bias,
            c.has_vectors};
}

} // namespace

TEST_CASE("every convolution of the zoo has an engine on every device that pulse is compiled for, without NVRTC too") {
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
            std::size_t least_precompiled = 1000;
            const std::size_t taken = whole ? all.size() : 12;
            for (std::size_t i = 0; i != taken; ++i) {
                const int batch = whole ? 4 : 1 << (i % 5);
                const supply found = supply_of(request_of(all[i], batch, precision.type), device, rules_of(precision));
                INFO(facts.name << ", " << precision.name << ", batch " << batch << ", " << text_of(all[i]));
                CHECK(found.engines != 0);
                CHECK(found.precompiled != 0);
                least = std::min(least, found.engines);
                most = std::max(most, found.engines);
                least_precompiled = std::min(least_precompiled, found.precompiled);
                ++asked;
            }
            std::printf("sm_%d %s: %zu of %zu convolutions, %zu to %zu engines each, %zu precompiled at least\n",
                        facts.sm, precision.name, taken, distinct, least, most, least_precompiled);
        }
    }
    std::printf("%zu graphs\n", asked);
}

TEST_CASE("the convolutions that tests compute on a device have engines, without NVRTC too") {
    if (!has_driver()) { return test::skip("neither libcuda.so.1 nor its stub is there"); }
    using pass = test::recorded_convolution::pass;
    test::convolution_recorder crooked;
    test::record_unet<test::crooked_unet>(crooked);
    const auto requests_of = [&](const std::vector<test::convolution_draw>& draws) {
        std::vector<std::pair<test::recorded_convolution, int>> all;
        for (const auto& one : crooked.seen) { all.emplace_back(one, 2); }
        for (const test::convolution_draw& draw : draws) {
            for (const test::drawn_convolution& c : test::draw_convolutions(draw)) {
                const auto add = [&](int channels, bool adds, bool biased) {
                    conv2d_shape s = c.shape;
                    s.in_channels = channels;
                    all.push_back({{s, pass::forward, adds, biased}, c.batch});
                    all.push_back({{s, pass::forward, true, biased}, c.batch});
                    all.push_back({{s, pass::forward, false, biased, true}, c.batch});
                    all.push_back({{s, pass::backward_input, c.adds, false}, c.batch});
                    all.push_back({{s, pass::backward_weight, true, false}, c.batch});
                };
                add(c.shape.in_channels, c.adds, c.biased);
                if (c.second == 0) { continue; }
                add(c.shape.in_channels - c.second, c.adds, c.biased);
                add(c.second, true, false);
            }
        }
        std::erase_if(all, [](const auto& one) { return one.first.shape.is_product(); });
        return all;
    };
    const std::array all{requests_of({test::bf16_convolutions, test::timed_bf16_convolutions}),
                         requests_of({test::fp16_convolutions}), requests_of({test::tf32_convolutions}),
                         requests_of({test::fp32_convolutions, test::timed_fp32_convolutions})};
    // a different sample in every run, or all: a graph costs cuDNN up to 100 ms
    const bool whole = std::getenv("PULSE_TEST_ALL_CONVOLUTIONS") != nullptr;
    std::size_t turn = std::random_device{}();
    for (const cudnn_tests::device_facts& facts : {cudnn_tests::a100, cudnn_tests::h200, cudnn_tests::b200}) {
        const target device = target::described(cudnn_tests::properties_json(facts));
        for (std::size_t p = 0; p != precisions.size(); ++p) {
            for (std::size_t i = whole ? 0 : turn % 12; i < all[p].size(); i += whole ? 1 : 12) {
                const test::recorded_convolution& one = all[p][i].first;
                const int batch = all[p][i].second;
                INFO(facts.name << ", " << precisions[p].name << ", batch " << batch << ", " << text_of(one));
                convolution_request request = request_of(one, batch, precisions[p].type);
                supply found = supply_of(request, device, rules_of(precisions[p]));
                CHECK(found.engines != 0);
                CHECK(found.precompiled != 0);
                if (one.kind != pass::backward_weight || precisions[p].type != CUDNN_DATA_FLOAT) { continue; }
                request.adds = false; // if misaligned, or for part of a weight's channels
                found = supply_of(request, device, rules_of(precisions[p]));
                CHECK(found.engines != 0);
                CHECK(found.precompiled != 0);
            }
        }
        turn += 5;
    }
}

TEST_CASE("where floats may not be rounded no engine is Winograd's or Fourier's, and one is left") {
    if (!has_driver()) { return test::skip("neither libcuda.so.1 nor its stub is there"); }
    const target device = target::described(cudnn_tests::properties_json(cudnn_tests::a100));
    const descriptor graph = make_graph(
        {{320, 320, 32, 32}, 4, convolution_pass::forward, convolution_form::plain, CUDNN_DATA_FLOAT, 16}, nullptr);
    const auto transforming = [&](bool tensor_float) {
        std::ptrdiff_t found = 0;
        const auto all = engines_for(graph, device, {.tensor_float = tensor_float, .allow_run_time_compiled = true});
        CHECK(!all.empty());
        for (const engine_config& one : all) {
            const auto engine =
                one.config.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
            const auto notes = engine.at(0).get_all<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
            found += std::count_if(notes.begin(), notes.end(), [](cudnnBackendNumericalNote_t note) {
                return note == CUDNN_NUMERICAL_NOTE_FFT || note == CUDNN_NUMERICAL_NOTE_WINOGRAD ||
                       note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 ||
                       note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 ||
                       note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
            });
        }
        return found;
    };
    CHECK(transforming(true) > 0);
    CHECK(transforming(false) == 0);
}

TEST_CASE("cuDNN finds what it compiles engines with") {
    if (!has_driver()) { return test::skip("neither libcuda.so.1 nor its stub is there"); }
    for (const cudnn_tests::device_facts& facts : {cudnn_tests::a100, cudnn_tests::h200, cudnn_tests::b200}) {
        const target device = target::described(cudnn_tests::properties_json(facts));
        CHECK(compiles_at_run_time(device));
        const attention_graph attention{{64, 1, 64}, 1, attention_pass::forward, CUDNN_DATA_HALF};
        for (const engine_config& one : engines_for(make_graph(attention, nullptr), device, {})) {
            CHECK(one.run_time_compiled); // otherwise the check above would say nothing
        }
    }
}

TEST_CASE("an engine that was written as JSON is read back as the same engine") {
    if (!has_driver()) { return test::skip("neither libcuda.so.1 nor its stub is there"); }
    const target device = target::described(cudnn_tests::properties_json(cudnn_tests::h200));
    const convolution_graph graph{{64, 64, 16, 16},    2, convolution_pass::forward, convolution_form::bias,
                                  CUDNN_DATA_BFLOAT16, 16};
    const auto engines =
        engines_for(make_graph(graph, nullptr), device, {.tensor_float = true, .allow_run_time_compiled = false});
    REQUIRE(!engines.empty());
    const ready_engine made{device, engines.front()};
    const ready_engine read{device, made.json()};
    CHECK(read.json() == made.json());
    CHECK(read.workspace_bytes() == made.workspace_bytes());
    CHECK_THROWS_AS((ready_engine{device, made.json().substr(0, made.json().size() / 2)}), cudnn_error);
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
