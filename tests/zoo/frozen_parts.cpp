#include <pulse/zoo/frozen_parts.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/profile/analytic_frozen.hpp>
#include <pulse/profile/check_costs.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/zoo/known_models.hpp>

namespace {

using namespace pulse;

struct published {
    std::string_view name{};
    std::int64_t parameters{};
    double forward_flops{};
    std::int64_t result_elements{};
};

struct trained {
    std::string_view model{};
    std::vector<published> parts{};
};

// Parameters and FLOPs by the formulas of each network's layers, from an independent program. Unread layers are left
// out: one of CLIP-L as SDXL reads it (7,087,872 parameters, and its final norm's 1,536) and BERT's pooler (1,049,600).
const std::vector<trained> all_trained{
    {"sd15",
     {{"kl_f8", 34'163'664, 1'116'658'466'816.0, 4 * 64 * 64},
      {"clip_vit_l", 123'060'480, 13'298'503'680.0, 77 * 768}}},
    {"controlnet_sd15",
     {{"kl_f8", 34'163'664, 1'116'658'466'816.0, 4 * 64 * 64},
      {"clip_vit_l", 123'060'480, 13'298'503'680.0, 77 * 768}}},
    {"sd21",
     {{"kl_f8", 34'163'664, 2'609'118'314'496.0, 4 * 96 * 96},
      {"openclip_vit_h", 340'387'840, 45'127'233'536.0, 77 * 1024}}},
    {"sdxl",
     {{"kl_f8", 34'163'664, 4'878'950'727'680.0, 4 * 128 * 128},
      {"clip_vit_l_sdxl", 123'060'480 - 7'087'872 - 1'536, 12'190'295'040.0, 77 * 768},
      {"openclip_vit_bigg", 694'659'840, 97'863'106'560.0, 77 * 1280 + 1280}}},
    {"hunyuan_dit_v12",
     {{"kl_f8", 34'163'664, 4'878'950'727'680.0, 4 * 128 * 128},
      {"hunyuan_clip", 352'035'840 - 1'049'600, 47'089'287'168.0, 77 * 1024},
      {"mt5_xl", 1'669'958'656, 605'590'388'736.0, 256 * 2048}}},
    {"uvit_h2", {{"kl_f8", 34'163'664, 272'722'165'760.0, 4 * 32 * 32}}},
    {"ddpm_cifar10", {}}};

} // namespace

TEST_CASE("each backbone's frozen parts have the published parameters, FLOPs and results") {
    for (const trained& one : all_trained) {
        CAPTURE(std::string{one.model});
        REQUIRE(find_model(one.model) != nullptr);
        const auto found = frozen_parts(one.model);
        REQUIRE(found.size() == one.parts.size());
        for (std::size_t i = 0; i != found.size(); ++i) {
            CAPTURE(found[i].name.str());
            CHECK(found[i].name.view() == one.parts[i].name);
            std::int64_t parameters = 0;
            double flops = 0;
            for (const layer_node& l : found[i].layers) {
                parameters += l.parameter_elements;
                flops += l.forward_flops;
            }
            CHECK(parameters == one.parts[i].parameters);
            CHECK(flops == one.parts[i].forward_flops);
            CHECK(found[i].result_elements == one.parts[i].result_elements);
        }
    }
    CHECK(frozen_parts("no such model").empty());
}

TEST_CASE("analytic costs of frozen parts: rates, weights once a call, and what is alive") {
    for (const trained& one : all_trained) {
        const auto costs = frozen_costs(one.model, a100_80gb, 2);
        CHECK_NOTHROW(check_frozen(costs));
        REQUIRE(costs.size() == one.parts.size());
        for (std::size_t c = 0; c != costs.size(); ++c) {
            const double flops_per_us = 0.4 * 312e6;
            CHECK(costs[c].duration_us(2) - costs[c].duration_us(1) >=
                  one.parts[c].forward_flops / flops_per_us * 0.999);
            CHECK(costs[c].parameter_bytes() == 2 * one.parts[c].parameters);
            CHECK(costs[c].result_bytes == 2 * one.parts[c].result_elements);
            std::int64_t input = c == 0 ? costs[c].input_bytes : 0; // facts have another size
            for (const frozen_layer& l : costs[c].layers) {
                CHECK(l.live_bytes >= input + l.output_bytes);
                CHECK(l.call_us <= static_cast<double>(l.parameter_bytes) / (0.4 * 2039e3) * 1.001);
                input = l.output_bytes;
            }
        }
    }
    // with one sample a text encoder is bound by its weights; an embedding reads only part of its table
    const auto text = frozen_costs("sd21", a100_80gb, 2)[1];
    CHECK(text.layers.front().call_us == 0.0);
    CHECK(text.input_bytes == 4 * (77 * 2 + 1 + 77 * 2 - 1));
    CHECK(text.result_bytes == 2 * 77 * 1024);
    CHECK(text.duration_us(0) > text.duration_us(1) - text.duration_us(0));
    CHECK_THROWS_AS((void)frozen_costs("sd21", a100_80gb, 3), input_error);
    const frozen_graph none{.name = "none"};
    CHECK_THROWS_AS((void)analytic_frozen(none, a100_80gb, 2), input_error);
}
