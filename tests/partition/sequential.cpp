#include <pulse/partition/sequential.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/partition/report.hpp>
#include <pulse/partition/validate.hpp>

#include "../support/check_both.hpp"
#include "random_table.hpp"

namespace {

using namespace pulse;
using test::random_table;
using test::skip_pattern;

// Enumerates the ways to cut the layers into stages, by choosing lengths from the left.
template <class Visit>
void every_chain(const cost_table& costs, placement kind, int devices, int chunks, const Visit& visit) {
    partition cut{kind, devices, chunks, {}};
    const int stages = devices * chunks;
    const auto layers = static_cast<int>(costs.layers.size());
    const auto grow = [&](const auto& self, int first) -> void {
        const auto index = static_cast<int>(cut.stages.size());
        const int left = stages - index - 1;
        for (int last = left == 0 ? layers - 1 : first; last < layers - left; ++last) {
            cut.stages.push_back({index, index % devices, first, last});
            if (left == 0) {
                visit(cut);
            } else {
                self(self, last + 1);
            }
            cut.stages.pop_back();
        }
    };
    grow(grow, 0);
}

struct value {
    double load{};
    std::int64_t bytes{};
};

value worth(const partition& cut, const cost_table& costs, skip_routing routing, const std::vector<double>& speed) {
    const partition_report report = report_of(cut, costs, routing, speed);
    const double load = cut.kind == placement::sequential
                            ? report.max_load_us
                            : *std::max_element(report.stage_load_us.begin(), report.stage_load_us.end());
    return {load, cut.kind == placement::sequential ? report.bytes.total() : report.bytes.boundary()};
}

value best_by_trial(const cost_table& costs, placement kind, int devices, int chunks, double slack,
                    skip_routing routing, const std::vector<double>& speed) {
    double least = std::numeric_limits<double>::infinity();
    every_chain(costs, kind, devices, chunks,
                [&](const partition& cut) { least = std::min(least, worth(cut, costs, routing, speed).load); });
    std::optional<value> best;
    every_chain(costs, kind, devices, chunks, [&](const partition& cut) {
        const value now = worth(cut, costs, routing, speed);
        if (now.load > least * (1.0 + slack) * (1.0 + 1e-9)) { return; }
        if (!best || now.bytes < best->bytes || (now.bytes == best->bytes && now.load < best->load)) { best = now; }
    });
    return best.value();
}

constexpr bool compiles() {
    cost_table costs{};
    for (int l = 0; l != 6; ++l) {
        layer_cost layer{};
        layer.forward_us = l == 0 ? 10 : 2;
        layer.output_bytes = 8;
        costs.layers.push_back(layer);
    }
    const partition cut = sequential_partition(costs, 2);
    check_partition(cut, costs);
    return cut.stages[0].last_layer == 0 && report_of(cut, costs).max_load_us == 10.0;
}

} // namespace

TEST_CASE("the sequential optimum equals exhaustive search") {
    std::mt19937 random{11};
    int cases = 0;
    for (int devices = 1; devices <= 5; ++devices) {
        for (const skip_pattern pattern : {skip_pattern::none, skip_pattern::nested, skip_pattern::nested_gaps,
                                           skip_pattern::fan_out, skip_pattern::anything}) {
            for (int repeat = 0; repeat != 20; ++repeat) {
                const int layers = std::max(2, std::uniform_int_distribution<int>{devices, 11}(random));
                cost_table costs = random_table(random, layers, pattern);
                const std::vector<double> speed =
                    random() % 2U == 0U ? test::random_speeds(random, devices) : std::vector<double>{};
                const double slack = std::array{0.0, 0.1, 0.5}[random() % 3U];
                for (const skip_routing routing : {skip_routing::direct, skip_routing::relayed}) {
                    const partition cut = sequential_partition(
                        costs, devices, {.slack = slack, .routing = routing, .device_speed = speed});
                    check_partition(cut, costs);
                    const value ours = worth(cut, costs, routing, speed);
                    const value best = best_by_trial(costs, placement::sequential, devices, 1, slack, routing, speed);
                    CHECK(ours.load == best.load);
                    CHECK(ours.bytes == best.bytes);
                    ++cases;
                }
            }
        }
    }
    CHECK(cases == 1000);
}

TEST_CASE("the interleaved cut has the least greatest stage load, then the fewest activation bytes") {
    std::mt19937 random{12};
    for (int repeat = 0; repeat != 200; ++repeat) {
        const int devices = 1 + static_cast<int>(random() % 3U);
        const int chunks = 1 + static_cast<int>(random() % 2U);
        const cost_table costs = random_table(random, 6 + static_cast<int>(random() % 4U), skip_pattern::nested);
        // A cut between chunks of one device sends nothing, and a single device has no other cuts.
        if (devices == 1) { continue; }
        const std::vector<double> speed = test::random_speeds(random, devices);
        const partition cut = interleaved_partition(costs, devices, chunks, speed);
        check_partition(cut, costs);
        const value ours = worth(cut, costs, skip_routing::direct, speed);
        const value best =
            best_by_trial(costs, placement::interleaved, devices, chunks, 0.0, skip_routing::direct, speed);
        CHECK(ours.load == best.load);
        CHECK(ours.bytes == best.bytes);
    }
}

TEST_CASE("the sequential partition runs when a program is compiled") { CHECK_BOTH(compiles()); }

TEST_CASE("what cannot be cut is refused") {
    std::mt19937 random{13};
    const cost_table costs = random_table(random, 4, skip_pattern::none);
    CHECK_THROWS_WITH_AS(static_cast<void>(sequential_partition(costs, 5)),
                         "no sequential partition: it needs 5 stages, but the model has 4 layers", infeasible_error);
    CHECK_THROWS_WITH_AS(static_cast<void>(interleaved_partition(costs, 3, 2)),
                         "no interleaved partition: it needs 6 stages, but the model has 4 layers", infeasible_error);
    CHECK_THROWS_AS(static_cast<void>(sequential_partition(costs, 0)), input_error);
    CHECK_THROWS_AS(static_cast<void>(interleaved_partition(costs, 2, 0)), input_error);
    CHECK_THROWS_AS(static_cast<void>(sequential_partition(costs, 2, {.slack = -1.0})), input_error);
    CHECK_THROWS_AS(static_cast<void>(sequential_partition({}, 1)), input_error);
    CHECK_THROWS_WITH_AS(static_cast<void>(sequential_partition(costs, 2, {.device_speed = {1.0}})),
                         "device_speed: it must have one value per device (2), not 1", input_error);
    CHECK_THROWS_WITH_AS(static_cast<void>(interleaved_partition(costs, 2, 1, {1.0, -1.0})),
                         "device_speed: device 1: it must be a number above 0", input_error);
}
