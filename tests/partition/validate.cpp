#include <pulse/partition/validate.hpp>

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include <doctest/doctest.h>

#include <pulse/partition/report.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/profile/check_costs.hpp>

#include "random_table.hpp"

namespace {

using namespace pulse;

cost_table nested_skips(int layers) {
    cost_table costs{};
    for (int l = 0; l != layers; ++l) {
        layer_cost layer{};
        layer.forward_us = 1 + l;
        layer.output_bytes = 10;
        costs.layers.push_back(layer);
    }
    for (int l = 0; 2 * l + 2 < layers; ++l) { costs.skips.push_back({l, layers - 1 - l, 1}); }
    return costs;
}

std::string broken(const partition& cut, const cost_table& costs) {
    try {
        check_partition(cut, costs);
    } catch (const input_error& e) { return e.what(); }
    return "valid";
}

} // namespace

TEST_CASE("each broken invariant of a partition is named") {
    const cost_table costs = nested_skips(12);
    const partition good = skip_aware_partition(costs, 2);
    CHECK(broken(good, costs) == "valid");
    CHECK(broken(sequential_partition(costs, 3), costs) == "valid");
    CHECK(broken(interleaved_partition(costs, 3, 2), costs) == "valid");

    partition bad = good;
    bad.devices = 0;
    CHECK(broken(bad, costs) == "partition: devices must be at least 1");
    bad = good;
    bad.waves = 0;
    CHECK(broken(bad, costs) == "partition: waves must be at least 1");
    bad = good;
    bad.waves = 2;
    CHECK(broken(bad, costs) == "partition: has 4 stages, but the placement needs 8");
    bad = good;
    bad.stages.pop_back();
    CHECK(broken(bad, costs) == "partition: has 3 stages, but the placement needs 4");
    bad = good;
    bad.stages[2].index = 1;
    CHECK(broken(bad, costs) == "partition: stages[2].index must be 2");
    bad = good;
    bad.stages[3].device = 1;
    CHECK(broken(bad, costs) == "partition: stages[3].device must be 0");
    bad = good;
    ++bad.stages[1].first_layer;
    CHECK(broken(bad, costs) ==
          "partition: stages[1].first_layer must be " + std::to_string(good.stages[1].first_layer));
    bad = good;
    --bad.stages[2].first_layer;
    CHECK(broken(bad, costs) ==
          "partition: stages[2].first_layer must be " + std::to_string(good.stages[2].first_layer));
    bad = good;
    bad.stages[1].last_layer = bad.stages[1].first_layer - 1;
    CHECK(broken(bad, costs) == "partition: stages[1] is empty");
    bad = good;
    bad.stages[3].last_layer = 12;
    CHECK(broken(bad, costs) == "partition: stages[3].last_layer is past the last layer");
    bad = good;
    --bad.stages[3].last_layer;
    CHECK(broken(bad, costs) == "partition: layers from 11 on are in no stage");
    bad = good;
    ++bad.stages[0].last_layer;
    ++bad.stages[1].first_layer;
    CHECK(broken(bad, costs).rfind("partition: skips[", 0) == 0);
    CHECK(broken(bad, costs).find("must have both ends on one device") != std::string::npos);
}

TEST_CASE("a report sums up loads, balance and bytes") {
    cost_table costs = nested_skips(6); // loads 1 2 3 4 5 6, skips 0-5 and 1-4
    costs.layers[2].backward_input_us = 1.5;
    costs.layers[2].backward_weight_us = 0.5;
    const partition cut{placement::folded, 2, 1, {{0, 0, 0, 0}, {1, 1, 1, 2}, {2, 1, 3, 4}, {3, 0, 5, 5}}};
    check_partition(cut, costs);
    const partition_report report = report_of(cut, costs);
    CHECK(report.stage_load_us == std::vector<double>{1.0, 7.0, 9.0, 6.0});
    CHECK(report.device_load_us == std::vector<double>{7.0, 16.0});
    CHECK(report.max_load_us == 16.0);
    CHECK(report.balance == doctest::Approx(23.0 / 32.0));
    CHECK(report.imbalance_us == 7.0);
    CHECK(report.bytes.boundary_forward == 20);
    CHECK(report.bytes.skip() == 0);

    costs.layers[0].open_bytes = 7;
    const partition_report uneven = report_of(cut, costs, skip_routing::relayed, {0.5, 2.0});
    CHECK(uneven.stage_load_us == std::vector<double>{2.0, 3.5, 4.5, 12.0});
    CHECK(uneven.device_load_us == std::vector<double>{14.0, 8.0});
    CHECK(uneven.balance == doctest::Approx(23.0 / (2.5 * 14.0)));
    CHECK(uneven.imbalance_us == 11.0);
    CHECK(uneven.bytes.boundary_forward == 27);
    CHECK_THROWS_AS(static_cast<void>(report_of(cut, costs, skip_routing::relayed, {1.0})), input_error);
}

TEST_CASE("costs that no file could hold are refused by field where a program made them") {
    const cost_table good = nested_skips(12);
    const auto refusal = [&](const std::function<void(cost_table&)>& spoil) {
        cost_table costs = good;
        costs.conditioning_bytes = 7;
        spoil(costs);
        try {
            check_costs(costs);
        } catch (const input_error& e) { return std::string{e.what()}; }
        return std::string{"valid"};
    };
    CHECK(refusal([](cost_table& c) { c.frozen_conditioning_bytes = 7; }) == "valid");
    for (const std::int64_t wrong : {-1, 8}) {
        CHECK(refusal([=](cost_table& c) { c.frozen_conditioning_bytes = wrong; }) ==
              "costs: frozen_conditioning_bytes must be from 0 to conditioning_bytes");
    }
    CHECK(refusal([](cost_table& c) { c.conditioning_bytes = -1; }) ==
          "costs: conditioning_bytes must be from 0 to 2^40");
    CHECK(refusal([](cost_table& c) { c.input_bytes = -1; }) == "costs: input_bytes must be from 0 to 2^40");
    CHECK(refusal([](cost_table& c) { c.microbatch_size = 0; }) == "costs: microbatch_size must be at least 1");
    CHECK(refusal([](cost_table& c) { c.layers[3].backward_weight_us = -1; }).find("a time") != std::string::npos);
    CHECK(refusal([](cost_table& c) { c.layers[3].saved_bytes = -1; }).find("a byte count") != std::string::npos);
    CHECK(refusal([](cost_table& c) { c.layers[3].frozen_output_bytes = 11; }).find("is more than output_bytes") !=
          std::string::npos);
    CHECK(refusal([](cost_table& c) { c.optimizer_gb_per_s = -1; }).find("optimizer_gb_per_s") != std::string::npos);
    CHECK(refusal([](cost_table& c) { c.skips[0].bytes = -1; }).find("byte count of a skip") != std::string::npos);
    for (const skip_cost& wrong : {skip_cost{-1, 3, 1}, skip_cost{3, 3, 1}, skip_cost{3, 12, 1}}) {
        CHECK(refusal([&](cost_table& c) { c.skips[0] = wrong; }) ==
              "costs: a skip must go forwards between two of the layers");
    }
}
