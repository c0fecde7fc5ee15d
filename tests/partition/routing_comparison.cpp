#include <pulse/partition/routing_comparison.hpp>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "random_table.hpp"

namespace {

using namespace pulse;
using test::random_table;
using test::skip_pattern;

// n equal layers with nested skips of `bytes` each, outputs of 1000 bytes.
cost_table u_shape(int layers, std::int64_t bytes) {
    cost_table costs{};
    for (int l = 0; l != layers; ++l) {
        layer_cost layer{};
        layer.name = label{std::string_view{"l"}} + static_cast<unsigned>(l);
        layer.forward_us = 10.0;
        layer.output_bytes = 1000;
        costs.layers.push_back(layer);
    }
    for (int l = 0; 2 * l + 2 < layers; ++l) { costs.skips.push_back({l, layers - 1 - l, bytes}); }
    return costs;
}

} // namespace

TEST_CASE("links carry together what the traffic counts, and each direction the same") {
    std::mt19937 random{41};
    for (int repeat = 0; repeat != 200; ++repeat) {
        cost_table costs = random_table(random, 14, skip_pattern::anything);
        test::add_residuals(random, costs);
        const int devices = 2 + static_cast<int>(random() % 4U);
        const partition cuts[]{sequential_partition(costs, devices), interleaved_partition(costs, devices, 2)};
        for (const partition& cut : cuts) {
            for (const skip_routing routing : {skip_routing::relayed, skip_routing::direct}) {
                const link between{2.0, 1e-3}; // 1 us per byte
                std::int64_t bytes = 0;
                for (const link_use& use : link_uses(cut, costs, routing, between)) {
                    bytes += use.bytes;
                    CHECK(use.from != use.to);
                    CHECK(use.us == doctest::Approx(2.0 * use.messages + static_cast<double>(use.bytes)));
                }
                CHECK(bytes == traffic_of(cut, costs, routing).total());
            }
        }
    }
}

TEST_CASE("relaying, sending directly and collocating are compared, each in its own cut") {
    const cost_table costs = u_shape(16, 1000);
    const link between{1.0, 0.1}; // 10 us for 1000 bytes
    const routing_comparison compared = compare_routings(costs, 4, 1, between);
    // One direction, in units of 1000: folded 6 boundaries; relayed 3 + 4 + 7 + 4; direct 3 + 7.
    CHECK(compared.collocated.report.bytes.total() == 2 * 6000);
    CHECK(compared.relayed.report.bytes.total() == 2 * 18000);
    CHECK(compared.direct.report.bytes.total() == 2 * 10000);
    CHECK(&compared.least_bytes() == &compared.collocated);
    CHECK(compared.collocated.transfer_us == doctest::Approx(12 * 11.0));
    CHECK(compared.direct.transfer_us == doctest::Approx(20 * 11.0));
    CHECK(compared.relayed.transfer_us == doctest::Approx(6 * 1.0 + 36 * 10.0));
    CHECK(compared.relayed.busiest.bytes == 8000);
    CHECK(compared.relayed.busiest.messages == 1);
    CHECK(compared.relayed.link_binds); // 81 us against 40
    CHECK(!compared.collocated.link_binds);

    const std::string text = to_text(compared, costs);
    CHECK(text.find("collocated: 12000 bytes between devices (0 of skips), 132.0 us of transfers; device 0 binds with "
                    "40.0 us, most of it in stage 0 (l0 to l1)") == 0);
    CHECK(
        text.find("relayed: 36000 bytes between devices (30000 of skips), 366.0 us of transfers; the link 1 -> 2 binds "
                  "with 81.0 us for 1 message of 8000 bytes, above the greatest device load of 40.0 us") !=
        std::string::npos);
    CHECK(text.find("fewest bytes: collocated\n") != std::string::npos);
}

TEST_CASE("collocation loses when skips are small against the boundaries that it adds") {
    const cost_table costs = u_shape(16, 10);
    const routing_comparison compared = compare_routings(costs, 4, 1, {});
    CHECK(&compared.least_bytes() == &compared.direct);
    CHECK(to_text(compared, costs).find("fewest bytes: direct\n") != std::string::npos);
}

TEST_CASE("a way without a cut says which edge and which number of devices make it so") {
    cost_table costs = u_shape(16, 1000);
    costs.skips.insert(costs.skips.begin() + 2, {0, 7, 64});
    const routing_comparison compared = compare_routings(costs, 4, 1, {});
    CHECK(!compared.collocated.feasible);
    CHECK(compared.collocated.why_not.find("skip l0 -> l7 (layers 0 and 7) prevents it; at most ") !=
          std::string::npos);
    CHECK(compared.relayed.feasible);
    CHECK(&compared.least_bytes() == &compared.direct);
    CHECK(to_text(compared, costs).find("collocated: impossible: no folded partition over 4 devices") == 0);
    const routing_comparison none = compare_routings(costs, 17, 1, {});
    CHECK(!none.least_bytes().feasible);
    CHECK(to_text(none, costs).find("no choice is possible\n") != std::string::npos);
}
