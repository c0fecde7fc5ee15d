#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include <doctest/doctest.h>

#include <nn/small_text.hpp>
#include <pulse/core/error.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/nn/value_graph.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/check_costs.hpp>
#include <pulse/zoo/known_models.hpp>

using namespace pulse;

TEST_CASE("every backbone is found by its name, with its published parameter total, and can be planned") {
    const std::map<std::string, std::int64_t> totals{{"sd15", 859'520'964},
                                                     {"sd21", 865'910'724},
                                                     {"controlnet_sd15", 361'279'120},
                                                     {"sdxl", 2'567'463'684},
                                                     {"uvit_s2", 44'255'328},
                                                     {"uvit_m4", 130'940'292},
                                                     {"uvit_l2", 286'763'172},
                                                     {"uvit_h2", 500'832'016},
                                                     {"hunyuan_dit_v11", 1'516'534'048},
                                                     {"hunyuan_dit_v12", 1'499'952'032},
                                                     {"ddpm_cifar10", 35'746'307},
                                                     {"ddpm_fmnist", 1'623'169}};
    CHECK(known_models.size() == totals.size());
    for (const auto& [key, total] : totals) {
        const std::string& name = key;
        CAPTURE(name);
        const known_model* const found = find_model(name);
        REQUIRE(found != nullptr);
        CHECK(found->name.view() == name);
        CHECK(found->graph.model.view() == name);
        CHECK(found->parameter_count() == total);
        CHECK_NOTHROW(check_costs(analytic_costs(found->graph, a100_80gb, 2, 2)));
    }
    CHECK(find_model("sd") == nullptr);
    CHECK(find_model("") == nullptr);
}

namespace {

template <class M>
void check_value() {
    static constexpr auto typed = graph_of<M>();
    CAPTURE(M::name.str());
    const value_graph made = value_graph_of(M::config);
    const graph_view view = made.view();
    CHECK(view.model == typed.model);
    CHECK(std::ranges::equal(view.layers, typed.layers));
    CHECK(std::ranges::equal(view.skips, typed.skips));
    CHECK(view.conditioning_elements == typed.conditioning_elements);
    CHECK(view.frozen_conditioning_elements == typed.frozen_conditioning_elements);
}

} // namespace

TEST_CASE("a model as a value is its type's graph, layer by layer") {
    check_value<sd15>();
    check_value<sd21>();
    check_value<sdxl>();
    check_value<test::small_projected>();
    check_value<uvit_s2>();
    check_value<uvit_h2>();
    check_value<hunyuan_dit_v11>();
    check_value<hunyuan_dit_v12>();
    check_value<ddpm_cifar10>();
    check_value<ddpm_fmnist>();
}

TEST_CASE("a model as a value is its type's graph at other extents, and refuses what the type refuses") {
    for (const extent& to : {extent{64, 64}, extent{128, 8}, extent{40, 104}}) {
        const auto typed = graph_of<sd21>(resize<sd21>(to));
        CHECK(std::ranges::equal(value_graph_of(sd21::config, to).view().layers, typed.layers));
    }
    CHECK_THROWS_WITH_AS(
        static_cast<void>(value_graph_of(sd21::config, {60, 64})),
        doctest::Contains("model sd21 cannot read 60 x 64: its height must be a multiple of 8 (56 or 64)"),
        input_error);
    const auto typed = graph_of<hunyuan_dit_v12>(resize<hunyuan_dit_v12>({64, 30}));
    CHECK(std::ranges::equal(value_graph_of(hunyuan_dit_v12::config, {64, 30}).view().layers, typed.layers));
    CHECK_THROWS_WITH_AS(static_cast<void>(value_graph_of(hunyuan_dit_v12::config, {64, 31})),
                         doctest::Contains("its width of 2 (30 or 32)"), input_error);
    const auto resampled = graph_of<uvit_s2>(resize<uvit_s2>({64, 30}));
    CHECK(std::ranges::equal(value_graph_of(uvit_s2::config, {64, 30}).view().layers, resampled.layers));
    CHECK_THROWS_WITH_AS(static_cast<void>(value_graph_of(uvit_s2::config, {64, 31})),
                         doctest::Contains("its width of 2 (30 or 32)"), input_error);
}
