#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <plan/random_plan.hpp>
#include <pulse/core/error.hpp>
#include <pulse/simulate/grid_links.hpp>
#include <pulse/simulate/simulator.hpp>

#include "contended.hpp"

namespace shared_link_tests {

using doctest::Approx;
using pulse_test::planned_model;

TEST_CASE("a grid on a cluster: the messages of replicas take the links that lie between them") {
    const pulse::link inside{1, 100};
    const pulse::link outside{5, 10};
    const auto world = [&](int nodes, int devices, pulse::rank_layout layout, int p, int d,
                           pulse::replica_exchange how = pulse::replica_exchange::direct, int together = 1) {
        return pulse::simulated_on({.name = "c",
                                    .nodes = nodes,
                                    .devices_per_node = devices,
                                    .memory_bytes = 0,
                                    .intra_node = inside,
                                    .inter_node = outside},
                                   pulse::rank_grid{layout, p, d}, how, together);
    };
    // Within one node nothing is shared.
    const auto near = world(1, 8, pulse::rank_layout::pipeline_inside, 2, 4);
    for (const auto& of_rank : near.replica_rounds) {
        CHECK(of_rank == std::vector<pulse::replica_round>(3, {inside, 1, false}));
    }
    CHECK(near.replica_routes == std::vector<pulse::link_route>(2));
    // A single replica has no rounds.
    const auto one = world(2, 2, pulse::rank_layout::pipeline_inside, 4, 1);
    CHECK(one.replica_routes == std::vector<pulse::link_route>(4));
    // What all ranks really send, by node, counted message by message.
    for (const auto layout : {pulse::rank_layout::pipeline_inside, pulse::rank_layout::replicas_inside}) {
        for (const auto how : {pulse::replica_exchange::direct, pulse::replica_exchange::ring}) {
            for (const int d : {1, 2, 4, 8, 16}) {
                const int p = 16 / d;
                const pulse::rank_grid grid{layout, p, d};
                const auto made = world(4, 4, layout, p, d, how);
                for (int device = 0; device != p; ++device) {
                    const auto& rounds = made.replica_rounds[static_cast<std::size_t>(device)];
                    REQUIRE(rounds.size() == static_cast<std::size_t>(d - 1));
                    int counted = 0;
                    for (const auto& round : rounds) { counted += round.shared ? round.messages : 0; }
                    int leaves = 0; // the node of replica 0
                    const int home = grid.rank_of(device, 0) / 4;
                    for (int from = 0; from != d; ++from) {
                        for (int to = 0; to != d; ++to) {
                            const bool sends = how == pulse::replica_exchange::direct || to == (from + 1) % d;
                            const int times = how == pulse::replica_exchange::direct ? 1 : d - 1;
                            if (!sends || grid.rank_of(device, from) / 4 != home ||
                                grid.rank_of(device, to) / 4 == home) {
                                continue;
                            }
                            leaves += times;
                        }
                    }
                    CAPTURE(d);
                    CHECK(counted == leaves);
                    CHECK(made.replica_routes[static_cast<std::size_t>(device)] ==
                          (leaves > 0 ? pulse::link_route{2 * home, 2 * home + 1} : pulse::link_route{}));
                }
            }
        }
    }
    // If a node sums first, it sends one share per other group instead of one per replica.
    for (const auto layout : {pulse::rank_layout::pipeline_inside, pulse::rank_layout::replicas_inside}) {
        for (const int d : {1, 2, 4, 8, 16}) {
            const int p = 16 / d;
            const pulse::rank_grid grid{layout, p, d};
            const pulse::cluster machine{.name = "c", .nodes = 4, .devices_per_node = 4};
            const auto node = [&](int device, int r) { return grid.rank_of(device, r) / 4; };
            std::vector<int> sizes;
            for (const int size : {2, 4, 8}) {
                bool fits = size < d && node(0, 0) != node(0, d - 1);
                for (int r = 0; r != d; ++r) {
                    for (int device = 0; device != p; ++device) {
                        fits = fits && node(device, r) == node(device, r / size * size);
                    }
                }
                if (fits) { sizes.push_back(size); }
            }
            CAPTURE(d);
            CHECK(pulse::possible_node_replicas(machine, grid) == sizes);
            for (const int size : sizes) {
                const auto made = world(4, 4, layout, p, d, pulse::replica_exchange::direct, size);
                CHECK(made.node_replicas == size);
                for (int device = 0; device != p; ++device) {
                    int leaves = 0;
                    for (int from = 0; from != d; ++from) {
                        for (int to = from % size; to < d; to += size) {
                            leaves +=
                                node(device, from) == node(device, 0) && node(device, to) != node(device, 0) ? 1 : 0;
                        }
                    }
                    int counted = 0;
                    int shares = 0;
                    int number = 0;
                    for (const auto& round : made.replica_rounds[static_cast<std::size_t>(device)]) {
                        counted += round.shared ? round.messages * round.shares : 0;
                        shares += round.shares;
                        CHECK(round.shares == (++number < size ? d / size : 1));
                        CHECK((number >= size || round.line == inside));
                    }
                    CHECK(counted == leaves);
                    CHECK(shares == d - 1);
                    CHECK(number == size - 1 + d / size - 1);
                }
            }
        }
    }
    // Several messages of a round queue for their node's link.
    const auto two = world(2, 4, pulse::rank_layout::pipeline_inside, 1, 8);
    CHECK(two.replica_rounds[0][3] == pulse::replica_round{outside, 4, true});
    CHECK(two.replica_rounds[0][0] == pulse::replica_round{outside, 1, true});
    CHECK_THROWS_AS((void)world(2, 2, pulse::rank_layout::pipeline_inside, 2, 4), pulse::input_error);
    CHECK_THROWS_AS((void)world(2, 2, pulse::rank_layout::pipeline_inside, 0, 4), pulse::input_error);
}

TEST_CASE("the links of a cluster: own ones in a node, one each way between nodes") {
    const pulse::cluster two{
        .name = "two", .nodes = 2, .devices_per_node = 2, .intra_node = {1, 100}, .inter_node = {5, 10}};
    const auto o = pulse::simulated_on(two, {pulse::rank_layout::pipeline_inside, 4, 1});
    for (std::size_t from = 0; from != 4; ++from) {
        for (std::size_t to = 0; to != 4; ++to) {
            const bool inside = from / 2 == to / 2;
            if (from != to) { CHECK(o.links[from * 4 + to] == (inside ? two.intra_node : two.inter_node)); }
            const int out = static_cast<int>(from / 2 * 2);
            const int in = static_cast<int>(to / 2 * 2) + 1;
            CHECK(o.routes[from * 4 + to] == (inside ? pulse::link_route{} : pulse::link_route{out, in}));
        }
    }
    CHECK_THROWS_AS((void)pulse::simulated_on(two, {pulse::rank_layout::pipeline_inside, 5, 1}), pulse::input_error);
}

} // namespace shared_link_tests
