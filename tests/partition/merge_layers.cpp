#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>

#include <pulse/hardware/device.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/partition/find_skip_aware.hpp>
#include <pulse/partition/merge_layers.hpp>
#include <pulse/partition/report.hpp>
#include <pulse/partition/validate.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/check_costs.hpp>
#include <pulse/zoo/sdxl.hpp>

#include "random_table.hpp"

using namespace pulse;
using namespace pulse::test;

TEST_CASE("a cut of merged layers is one of the layers, with the same loads and bytes") {
    std::mt19937 random{17};
    int cuts = 0;
    int merged_some = 0;
    for (int round = 0; round != 400; ++round) {
        const auto pattern = std::array{skip_pattern::none, skip_pattern::nested_gaps, skip_pattern::fan_out,
                                        skip_pattern::crossing}[static_cast<std::size_t>(round % 4)];
        const int layers = std::uniform_int_distribution<int>{4, 24}(random);
        cost_table costs = random_table(random, layers, pattern);
        for (layer_cost& l : costs.layers) { l.deferred_bytes = 8 * static_cast<int>(random() % 9U); }
        const auto most = static_cast<std::size_t>(2 + random() % 12U);
        const merged_layers merged = merge_layers(costs, most);
        CAPTURE(round);
        REQUIRE_NOTHROW(check_costs(merged.costs));
        REQUIRE(merged.first.size() == merged.costs.layers.size() + 1);
        REQUIRE(merged.first.front() == 0);
        REQUIRE(merged.first.back() == layers);
        merged_some += static_cast<int>(merged.costs.layers.size()) < layers ? 1 : 0;
        // Only skips keep layers beyond the limit apart.
        for (std::size_t l = 1; merged.costs.layers.size() > most && l + 1 < merged.first.size(); ++l) {
            CHECK(std::any_of(costs.skips.begin(), costs.skips.end(), [&](const skip_cost& e) {
                return e.from + 1 == merged.first[l] || e.to == merged.first[l];
            }));
        }
        const int waves = 1 + static_cast<int>(random() % 2U);
        const auto found = find_skip_aware_partition(merged.costs, 2, waves, {});
        if (!found) { continue; }
        ++cuts;
        const partition cut = merged.of_layers(*found);
        REQUIRE_NOTHROW(check_partition(cut, costs));
        const partition_report coarse = report_of(*found, merged.costs);
        const partition_report fine = report_of(cut, costs);
        CHECK(fine.max_load_us == doctest::Approx(coarse.max_load_us));
        CHECK(fine.bytes == coarse.bytes);
        for (std::size_t s = 0; s != cut.stages.size(); ++s) {
            const auto sum = [](const cost_table& of, const stage& at) {
                std::int64_t parameters = 0;
                std::int64_t kept = 0;
                for (int l = at.first_layer; l <= at.last_layer; ++l) {
                    const layer_cost& layer = of.layers[static_cast<std::size_t>(l)];
                    parameters += layer.parameter_bytes;
                    kept += layer.saved_bytes + layer.deferred_bytes;
                    if (l != at.last_layer) { kept += layer.output_bytes + layer.gradient_bytes(); }
                }
                return std::pair{parameters, kept};
            };
            CHECK(sum(costs, cut.stages[s]) == sum(merged.costs, found->stages[s]));
        }
    }
    CHECK(cuts > 100);
    CHECK(merged_some > 200);
}

TEST_CASE("a table that is small enough stays as it is") {
    std::mt19937 random{3};
    const cost_table costs = random_table(random, 9, skip_pattern::nested);
    CHECK(merge_layers(costs, 9).costs == costs);
}

TEST_CASE("parts are merged to the layers of their name") {
    const cost_table parts = analytic_costs(graph_of<sdxl_tiny>().view(), cpu_core, 2, 4);
    const cost_table whole = analytic_costs(uncut_graph_of<sdxl_tiny>().view(), cpu_core, 2, 4);
    const cost_table merged = merge_parts(parts);
    REQUIRE(merged.layers.size() == whole.layers.size());
    CHECK(merged.skips == whole.skips);
    for (std::size_t l = 0; l != whole.layers.size(); ++l) {
        CHECK(merged.layers[l].name == whole.layers[l].name);
        CHECK(merged.layers[l].parameter_bytes == whole.layers[l].parameter_bytes);
        CHECK(merged.layers[l].factored_elements == whole.layers[l].factored_elements);
        CHECK(merged.layers[l].output_bytes == whole.layers[l].output_bytes);
        CHECK(merged.layers[l].deferred_bytes == whole.layers[l].deferred_bytes);
        CHECK(merged.layers[l].open_bytes == 0);
    }
}
