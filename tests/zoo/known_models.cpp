#include <cstdint>
#include <map>
#include <string>

#include <doctest/doctest.h>

#include <pulse/profile/analytic.hpp>
#include <pulse/profile/check_costs.hpp>
#include <pulse/zoo/known_models.hpp>

using namespace pulse;

TEST_CASE("every backbone is found by its name, with its published parameter total, and can be planned") {
    const std::map<std::string, std::int64_t> totals{{"sd15", 859'520'964},
                                                     {"sd21", 865'910'724},
                                                     {"controlnet_sd15", 361'279'120},
                                                     {"sdxl", 2'567'463'684},
                                                     {"sdxl_fine", 2'567'463'684},
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
