#include <pulse/partition/traffic.hpp>

#include <array>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/partition/partition.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/skip_aware.hpp>

#include "random_table.hpp"

namespace {

using namespace pulse;
using test::random_table;
using test::skip_pattern;

// A random cut with the given placement; skips may cross.
partition random_cut(std::mt19937& random, placement kind, int devices, int waves, int layers) {
    partition cut{kind, devices, waves, {}};
    const int stages = stage_count(kind, devices, waves);
    int first = 0;
    for (int s = 0; s != stages; ++s) {
        const int left = stages - 1 - s;
        const int last = left == 0 ? layers - 1 : std::uniform_int_distribution<int>{first, layers - 1 - left}(random);
        cut.stages.push_back({s, device_of(kind, s, devices), first, last});
        first = last + 1;
    }
    return cut;
}

// Walks one microbatch through the layers, moving every tensor from device to device: counts messages as they would be
// sent, without a formula.
traffic walk(const partition& cut, const cost_table& costs, skip_routing routing) {
    std::vector<int> home;
    for (const stage& part : cut.stages) { home.resize(static_cast<std::size_t>(part.last_layer) + 1, part.device); }
    traffic sum{};
    std::vector<const skip_cost*> in_hand;
    for (std::size_t l = 0; l != home.size(); ++l) {
        if (l != 0 && home[l] != home[l - 1]) {
            sum.boundary_forward += costs.layers[l - 1].output_bytes + costs.layers[l - 1].open_bytes;
            sum.boundary_forward += costs.conditioning_bytes;
            // Every tensor sent has a gradient of its size sent back, except conditioning that needs none.
            sum.boundary_backward += costs.layers[l - 1].output_bytes + costs.layers[l - 1].open_bytes;
            sum.boundary_backward += costs.conditioning_bytes - costs.frozen_conditioning_bytes;
            if (routing == skip_routing::relayed) {
                for (const skip_cost* edge : in_hand) { sum.skip_forward += edge->bytes; }
            }
        }
        std::erase_if(in_hand, [l](const skip_cost* edge) { return edge->to == static_cast<int>(l); });
        for (const skip_cost& edge : costs.skips) {
            const bool stays = home[static_cast<std::size_t>(edge.to)] == home[l];
            if (edge.from != static_cast<int>(l) || stays) { continue; }
            if (routing == skip_routing::direct) { sum.skip_forward += edge.bytes; }
            in_hand.push_back(&edge);
        }
    }
    sum.skip_backward = sum.skip_forward;
    return sum;
}

// Hunyuan-DiT as in the formulas: an even number of equal blocks, skips (i, L-1-i) for i <= L/2 - 2, all of size h.
cost_table hunyuan(int blocks, std::int64_t h) {
    cost_table costs{};
    for (int l = 0; l != blocks; ++l) {
        layer_cost layer{};
        layer.name = label{std::string_view{"block"}} + static_cast<unsigned>(l);
        layer.forward_us = 1.0;
        layer.backward_input_us = 1.0;
        layer.backward_weight_us = 1.0;
        layer.output_bytes = h;
        costs.layers.push_back(layer);
    }
    for (int l = 0; l <= blocks / 2 - 2; ++l) { costs.skips.push_back({l, blocks - 1 - l, h}); }
    return costs;
}

} // namespace

TEST_CASE("traffic equals a walk that counts messages") {
    std::mt19937 random{5};
    int crossing = 0;
    for (const placement kind : {placement::folded, placement::sequential, placement::interleaved}) {
        for (int repeat = 0; repeat != 300; ++repeat) {
            const int devices = 1 + static_cast<int>(random() % 4U);
            const int waves = kind == placement::sequential ? 1 : 1 + static_cast<int>(random() % 2U);
            const int layers = stage_count(kind, devices, waves) + 2 + static_cast<int>(random() % 8U);
            cost_table costs = random_table(random, layers,
                                            std::array{skip_pattern::nested, skip_pattern::fan_out,
                                                       skip_pattern::crossing, skip_pattern::anything}[random() % 4U]);
            const partition cut = random_cut(random, kind, devices, waves, layers);
            for (const skip_routing routing : {skip_routing::direct, skip_routing::relayed}) {
                const traffic counted = traffic_of(cut, costs, routing);
                CHECK(counted == walk(cut, costs, routing));
                if (costs.frozen_conditioning_bytes == 0) {
                    CHECK(counted.total() == 2 * (counted.boundary_forward + counted.skip_forward));
                }
                crossing += counted.skip() != 0 ? 1 : 0;
            }
        }
    }
    CHECK(crossing > 500);
}

TEST_CASE("the volume arithmetic of Hunyuan-DiT: 40 blocks, every skip as large as the boundary") {
    const std::int64_t h = 1000;
    const cost_table costs = hunyuan(40, h);
    struct expected {
        int devices;
        std::int64_t relayed;
        std::int64_t direct;
        std::int64_t folded;
    };
    // One direction, in units of h. The closed forms assume that each of the P/2 mirrored stage pairs carries 20 /
    // (P/2) skips. The innermost pair has one less, because blocks 19 and 20 have no skip and only the middle cut
    // separates them: 1 less for relay and for direct.
    for (const expected& row : {expected{2, 20, 20, 2}, expected{4, 42, 22, 6}, expected{8, 86, 26, 14}}) {
        const int devices = row.devices;
        CAPTURE(devices);
        const std::int64_t pairs = devices / 2;
        const std::int64_t aggregated = 20 / pairs;
        CHECK(row.relayed == pairs * pairs * aggregated + devices - 1 - 1);
        CHECK(row.direct == pairs * aggregated + devices - 1 - 1);
        partition even{placement::sequential, devices, 1, {}};
        for (int s = 0; s != devices; ++s) {
            even.stages.push_back({s, s, s * 40 / devices, (s + 1) * 40 / devices - 1});
        }
        CHECK(traffic_of(even, costs, skip_routing::relayed).total() == 2 * row.relayed * h);
        CHECK(traffic_of(even, costs, skip_routing::direct).total() == 2 * row.direct * h);
        const partition fold = skip_aware_partition(costs, devices);
        CHECK(traffic_of(fold, costs, skip_routing::direct).skip() == 0);
        CHECK(traffic_of(fold, costs, skip_routing::relayed).total() == 2 * row.folded * h);
    }
}

TEST_CASE("conditioning travels with every boundary between devices, and not with the fold") {
    cost_table costs = hunyuan(8, 10);
    costs.conditioning_bytes = 3;
    const partition fold = skip_aware_partition(costs, 2);
    const traffic bytes = traffic_of(fold, costs, skip_routing::direct);
    CHECK(bytes.boundary_forward == 2 * (10 + 3));
    CHECK(bytes.boundary() == 2 * bytes.boundary_forward);
    costs.frozen_conditioning_bytes = 2;
    CHECK(traffic_of(fold, costs, skip_routing::direct).boundary_forward == 2 * (10 + 3));
    CHECK(traffic_of(fold, costs, skip_routing::direct).boundary_backward == 2 * (10 + 1));
    CHECK(traffic_of(skip_aware_partition(costs, 1), costs, skip_routing::direct).total() == 0);
}
